package config

import (
	"fmt"
	"math"
	"strconv"
	"time"

	yaml3 "go.yaml.in/yaml/v3"
)

// scalarOf returns the value of a scalar in a file, or why it is none of its
// kind.
func scalarOf(n *yaml3.Node, k kind) (value any, reason string) {
	switch {
	case n.Tag == "!!str":
		return quotedOf(n.Value, k)
	case k == kindText:
		return nil, fmt.Sprintf("%s is not text; put it into quotes: %q", n.Value, n.Value)
	case k == kindDuration && n.Tag == "!!int":
		return nil, fmt.Sprintf("%s has no unit; a duration is expected, such as %ss", n.Value, n.Value)
	case k == kindNumber && n.Tag == "!!int":
		var number int64
		if err := n.Decode(&number); err != nil || number < math.MinInt32 || number > math.MaxInt32 {
			return nil, n.Value + " is too large"
		}
		return int32(number), ""
	case k == kindBool && n.Tag == "!!bool":
		var is bool
		if err := n.Decode(&is); err == nil {
			return is, ""
		}
	}
	return nil, fmt.Sprintf("%q is not %s", n.Value, k.wants())
}

// quotedOf returns the value of what YAML takes for text.
func quotedOf(text string, k kind) (value any, reason string) {
	value, reason = textOf(text, k)
	if reason == "" && (k == kindNumber || k == kindBool) {
		return nil, fmt.Sprintf("%q is text and %s is expected; take the quotes away", text, k.wants())
	}
	return value, reason
}

// textOf returns the value that a text stands for, as flags and variables give
// it, or why it is none of its kind.
func textOf(text string, k kind) (value any, reason string) {
	var err error
	switch k {
	case kindText:
		return text, ""
	case kindNumber:
		var number int64
		if number, err = strconv.ParseInt(text, 10, 32); err == nil {
			return int32(number), ""
		}
	case kindBool:
		if text == "true" || text == "false" {
			return text == "true", ""
		}
	case kindDuration:
		if _, err = time.ParseDuration(text); err == nil {
			return text, ""
		}
	case kindList, kindObject, kindMapping, kindAny:
	}
	return nil, fmt.Sprintf("%q is not %s", text, k.wants())
}
