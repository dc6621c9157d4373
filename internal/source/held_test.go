package source

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/apis"
	"nodelet.dev/nodelet/internal/pod"
)

// Whatever files say and however they break: no name is delivered twice, a name
// stays with the origin that has it as long as that holds it (CFG-5), and a pod
// goes only when its origin is gone or, being sound, leaves it out (INV-25).
func TestHeldProperties(t *testing.T) {
	origins, names := []string{"a", "b", "c"}, []string{"x", "y"}
	key := func(name string) id {
		return id{kind: apis.KindPod, key: pod.Key{Namespace: "default", Name: name}}
	}
	rapid.Check(t, func(t *rapid.T) {
		h := newHeld(FileName, nil)
		had := map[string]string{} // pod name -> origin
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			origin := rapid.SampledFrom(origins).Draw(t, "origin")
			mayGo := map[string]bool{} // of this origin
			switch rapid.SampledFrom([]string{"replace", "replace", "fail", "forget"}).Draw(t, "what") {
			case "fail":
				h.fail(origin, "Unreadable", "x")
			case "forget":
				h.forget(origin)
				mayGo["x"], mayGo["y"] = true, true
			case "replace":
				now := parsed{unknown: rapid.Bool().Draw(t, "unknown")}
				for _, name := range names {
					switch rapid.SampledFrom([]string{"good", "broken", "absent"}).Draw(t, name) {
					case "good":
						p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
							Name: name, Namespace: "default", Annotations: map[string]string{pod.OriginAnnotation: origin},
						}}
						now.items = append(now.items, item{id: key(name), value: p})
					case "broken":
						now.broken = append(now.broken, key(name))
					case "absent":
						mayGo[name] = !now.unknown
					}
				}
				h.replace(origin, now)
			}
			has := map[string]string{}
			for _, p := range h.set().Pods {
				if has[p.Name] != "" {
					t.Fatalf("%s is delivered twice", p.Name)
				}
				has[p.Name] = pod.Origin(p)
			}
			for name, from := range had {
				if has[name] != from && (from != origin || !mayGo[name]) {
					t.Fatalf("%s went from %q to %q without a reason", name, from, has[name])
				}
			}
			had = has
		}
	})
}
