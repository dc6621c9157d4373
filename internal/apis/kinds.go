package apis

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// versionsOf returns the API versions in which a kind is taken.
func versionsOf(kind string) []string {
	switch kind {
	case KindPod, KindConfigMap, KindSecret:
		return []string{"v1"}
	case KindSidecarSet:
		return []string{"apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1"}
	}
	return nil
}

// checkKind returns the field and the reason why a kind cannot be taken, or "".
func checkKind(h header) (field, detail string) {
	kinds := []string{KindPod, KindConfigMap, KindSecret, KindSidecarSet}
	switch versions := versionsOf(h.Kind); {
	case h.Kind == "":
		return "kind", "must be set, for example to Pod"
	case versions == nil:
		detail = fmt.Sprintf("%s (%s) is not a kind that this node takes; it takes %s", h.Kind, orNone(h.APIVersion), strings.Join(kinds, ", "))
		if near := nearest(h.Kind, kinds); near != "" {
			detail += fmt.Sprintf("; did you mean %q?", near)
		}
		return "kind", detail
	case h.APIVersion == "":
		return "apiVersion", fmt.Sprintf("must be set to %s", strings.Join(versions, " or "))
	case !slices.Contains(versions, h.APIVersion):
		return "apiVersion", fmt.Sprintf("%s has no version %q here; use %s", h.Kind, h.APIVersion, strings.Join(versions, " or "))
	}
	return "", ""
}

func orNone(s string) string {
	if s == "" {
		return "no apiVersion"
	}
	return s
}

func groupVersionKind(h header) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
}
