package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

func hashFor(name, image string) string {
	return pod.ContainerHash(&corev1.Container{Name: name, Image: image})
}

// flatten turns the durable part of a record into lines "path" to "value". Ends
// of containers, failures and stamps take one line each.
func flatten(rec pod.Record) map[string]string {
	rec.Status = nil
	text, err := json.Marshal(rec)
	if err != nil {
		panic(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		panic(err)
	}
	out := map[string]string{}
	flattenInto(out, "", tree)
	return out
}

func flattenInto(out map[string]string, path string, node any) {
	m, ok := node.(map[string]any)
	switch {
	case !ok:
		out[path] = scalar(path, node)
		return
	case m["wall"] != nil:
		out[path] = stampText(m)
		return
	case m["updated"] != nil:
		if m["key"] != nil {
			out[path] = backoffText(m)
		}
		return
	case m["containerID"] != nil && m["attempt"] == nil:
		out[path] = verdictsText(m)
		return
	case m["containerID"] != nil:
		out[path] = exitText(m)
		return
	case m["class"] != nil:
		out[path] = fmt.Sprintf("(%v x%v %v since %s until %s)", pod.Class(m["class"].(float64)), m["count"], m["reason"],
			stampText(m["since"]), stampText(m["until"]))
		return
	}
	for key, child := range m {
		p := strings.TrimPrefix(path+"."+key, ".")
		p = strings.TrimPrefix(p, "containers.")
		flattenInto(out, p, child)
	}
}

func scalar(path string, v any) string {
	n, ok := v.(float64)
	switch {
	case ok && path == "phase":
		return pod.Phase(n).String()
	}
	return fmt.Sprint(v)
}

func stampText(node any) string {
	m, _ := node.(map[string]any)
	wall, err := time.Parse(time.RFC3339Nano, m["wall"].(string))
	if err != nil {
		panic(err)
	}
	if wall.IsZero() {
		return "never"
	}
	boot := time.Duration(m["boot"].(float64))
	if m["bootID"] == "boot1" && wall.Sub(start()) == boot-time.Hour {
		return wall.Format("15:04:05")
	}
	return fmt.Sprintf("%s(%v+%v)", wall.Format("15:04:05"), m["bootID"], boot)
}

func backoffText(m map[string]any) string {
	image, _, _ := strings.Cut(m["key"].(string), " ")
	text := fmt.Sprintf("(%v for %s after %v since %s)", time.Duration(m["delay"].(float64)), image, m["charged"],
		stampText(m["updated"]))
	if m["announced"] != nil {
		text += fmt.Sprintf(" announced=%v", m["announced"])
	}
	return text
}

func exitText(m map[string]any) string {
	return fmt.Sprintf("(%v in %v code %v %v at %s)", m["containerID"], m["sandboxID"], m["exitCode"], m["reason"],
		stampText(m["at"]))
}

func verdictsText(m map[string]any) string {
	words := []string{fmt.Sprint(m["containerID"])}
	for _, kind := range []string{"startup", "liveness", "readiness"} {
		if v, ok := m[kind].(float64); ok {
			words = append(words, kind, pod.Verdict(v).String())
		}
	}
	return "(" + strings.Join(words, " ") + ")"
}

// changes lists what differs, one line for each part of the record. A zero value
// that nobody set is left out.
func changes(before, after map[string]string) []string {
	paths := slices.Sorted(maps.Keys(after))
	for p := range before {
		if _, still := after[p]; !still {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	var lines []string
	part := ""
	for _, p := range slices.Compact(paths) {
		old, value := before[p], after[p]
		if old == value || (old == "" && (value == "0" || value == "never" || value == "syncing")) {
			continue
		}
		if value == "" {
			value = "-"
		}
		head, rest, _ := strings.Cut(p, ".")
		if head != part {
			part = head
			lines = append(lines, head)
		}
		lines[len(lines)-1] += strings.TrimSuffix(" "+rest, " ") + "=" + value
	}
	return lines
}
