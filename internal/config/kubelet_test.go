package config

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// TestKubeletFields holds the list of fields against the type.
func TestKubeletFields(t *testing.T) {
	var b strings.Builder
	writeFields(&b, "", reflect.TypeFor[kubelet.KubeletConfiguration]())
	if *update {
		require.NoError(t, os.WriteFile("kubelet_fields.txt", []byte(b.String()), 0o600))
	}
	require.Equal(t, b.String(), kubeletFields)
}

func writeFields(b *strings.Builder, path string, t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			if f.Type.Name() != "TypeMeta" {
				writeFields(b, path, f.Type)
			}
			continue
		}
		full, below := path+name, f.Type
		if below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		if below.Kind() == reflect.Slice && isObject(below.Elem()) {
			full, below = full+"[]", below.Elem()
		}
		if isObject(below) {
			writeFields(b, full+".", below)
			continue
		}
		b.WriteString(full + "\n")
	}
}

// isObject reports whether a type has fields of its own in JSON.
func isObject(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}
