package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestSameName: 3c "static start permission", PW-14 and INV-4. Under one name at
// most one instance is at work; who waits is what is wanted last.
func TestSameName(t *testing.T) {
	version := func(n string) *corev1.Pod {
		return changed(deaf("a"), func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "V", Value: n}} })
	}
	value := func(s *stage) string {
		list := s.a.Pods().Items
		if len(list) == 0 {
			return "none"
		}
		require.Len(s, list, 1)
		return list[0].Spec.Containers[0].Env[0].Value
	}
	for _, c := range []struct {
		name  string
		steps func(s *stage)
		want  string
		boxes int // made in all
	}{
		{"nobody is there: it starts", func(s *stage) { s.send("file", version("1")) }, "1", 1},
		{"one ends: the next waits for it", func(s *stage) {
			s.send("file", version("1"))
			s.send("file", version("2"))
			s.after(15 * time.Second)
			require.Equal(s, "1", value(s))
		}, "2", 2},
		{"who waited first is passed over by who is wanted now", func(s *stage) {
			s.send("file", version("1"))
			s.send("file", version("2"))
			s.send("file", version("3"))
		}, "3", 2},
		{"who waits and is wanted no more does not start", func(s *stage) {
			s.send("file", version("1"))
			s.send("file", version("2"))
			s.send("file")
		}, "none", 1},
		{"the first is wanted back: a new instance of it", func(s *stage) {
			s.send("file", version("1"))
			s.send("file", version("2"))
			s.send("file", version("1"))
		}, "1", 2},
		{"the wait goes on under the next agent", func(s *stage) {
			s.send("file", version("1"))
			s.send("file", version("2"))
			s.restart()
			s.send("file", version("2"))
		}, "2", 2},
		{"one that never started is no reason to wait long", func(s *stage) {
			remove := s.cri.Inject(fakecri.Fault{RPC: "RunPodSandbox", Times: -1})
			s.send("file", version("1"))
			s.after(time.Minute)
			remove()
			s.send("file", version("2"))
			s.after(time.Second)
			require.Equal(s, "2", value(s))
		}, "2", 1},
		{"one that ended by itself makes room at once", func(s *stage) {
			s.send("file", changed(version("1"), func(p *corev1.Pod) {
				p.Spec.RestartPolicy = corev1.RestartPolicyNever
				p.Spec.Containers[0].Command = []string{"true"}
			}))
			s.after(time.Minute)
			s.send("file", version("2"))
			s.after(time.Second)
			require.Equal(s, "2", value(s))
		}, "2", 2},
		{"another name waits for nobody", func(s *stage) {
			s.send("file", version("1"))
			s.send("file", version("2"), newPod("b"))
			require.Contains(s, s.running(), "b main")
			s.send("file", version("2"))
		}, "2", 3},
		{"a pod of the same name in another namespace waits for nobody", func(s *stage) {
			s.send("file", version("1"))
			other := changed(version("9"), func(p *corev1.Pod) { p.Namespace = "other" })
			s.send("file", version("2"), other)
			require.Len(s, s.running(), 2)
			s.send("file", version("2"))
		}, "2", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			onStage(t, fakecri.Options{}, file, func(s *stage) {
				c.steps(s)
				s.after(2 * time.Minute)
				require.Equal(s, c.want, value(s))
				made := 0
				for _, call := range s.calls("RunPodSandbox", "") {
					if call.Err == nil {
						made++
					}
				}
				require.Equal(s, c.boxes, made)
			})
		})
	}
}
