package node

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

func withPorts(name string, ports ...corev1.ContainerPort) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Ports: ports}}},
	}
}

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func TestHostPortsArbitration(t *testing.T) {
	port := freePort(t)
	h := NewHostPorts()
	first := withPorts("first", corev1.ContainerPort{HostPort: port})
	second := withPorts("second", corev1.ContainerPort{HostPort: port, HostIP: "127.0.0.1"})
	udp := withPorts("udp", corev1.ContainerPort{HostPort: port, Protocol: corev1.ProtocolUDP})
	require.NoError(t, h.Claim(t.Context(), first))
	require.NoError(t, h.Claim(t.Context(), first), "claiming again what it holds")
	err := h.Claim(t.Context(), second)
	require.Equal(t, pod.ClassConflict, pod.ClassOf(err), "ADM-8: one address conflicts with all")
	require.ErrorContains(t, err, "default/first holds it")
	require.NoError(t, h.Claim(t.Context(), udp), "another protocol is another port")
	h.Release(first.UID)
	require.NoError(t, h.Claim(t.Context(), second), "released")
}

func TestHostPortOfProcess(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	h := NewHostPorts()
	p := withPorts("web", corev1.ContainerPort{HostPort: int32(l.Addr().(*net.TCPAddr).Port)})
	err = h.Claim(t.Context(), p)
	require.Equal(t, pod.ClassConflict, pod.ClassOf(err))
	require.Equal(t, ReasonHostPort, pod.ReasonOf(err, ""))
	require.ErrorContains(t, err, "node.test (pid ", "the holder is named")
	p.Spec.HostNetwork = true
	require.NoError(t, h.Claim(t.Context(), p), "with the host's network the container binds it itself")
}

func TestFactsAndClock(t *testing.T) {
	f, err := Read("Edge-7")
	require.NoError(t, err)
	require.Equal(t, "edge-7", f.Name)
	require.NotEmpty(t, f.HostIPs)
	require.NotEmpty(t, f.BootID)
	require.Positive(t, f.MemoryBytes)
	c, err := NewClock(f.BootID)
	require.NoError(t, err)
	a := c.Now()
	b := c.Now()
	require.False(t, b.Before(a))
	require.Equal(t, f.BootID, a.BootID)
}
