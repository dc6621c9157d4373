package convert

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/fieldpath"
	"k8s.io/kubectl/pkg/util/resource"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"nodelet.dev/nodelet/internal/pod"
)

// Env returns the environment of a container in declaration order. Of variables
// with one name the last stays, at its own place. A value sees the
// variables above it (ENV-6).
func Env(in ContainerInput) ([]*runtimeapi.KeyValue, error) {
	c := in.Container
	if len(c.EnvFrom) > 0 {
		return nil, in.invalid("envFrom[0]", "cannot be honoured yet")
	}
	values := map[string]string{}
	last := map[string]int{}
	resolved := make([]string, len(c.Env))
	for i := range c.Env {
		value, err := envValue(in, i, expansion.MappingFuncFor(values))
		if err != nil {
			return nil, err
		}
		resolved[i], values[c.Env[i].Name], last[c.Env[i].Name] = value, value, i
	}
	var out []*runtimeapi.KeyValue
	for i := range c.Env {
		if name := c.Env[i].Name; last[name] == i {
			out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(resolved[i])})
		}
	}
	return out, nil
}

func envValue(in ContainerInput, i int, known func(string) string) (string, error) {
	e := &in.Container.Env[i]
	from := e.ValueFrom
	field := "env[" + strconv.Itoa(i) + "].valueFrom"
	switch {
	case from == nil:
		return expansion.Expand(e.Value, known), nil
	case from.FieldRef != nil:
		value, err := FieldValue(in.Pod, from.FieldRef.FieldPath, in.Sandbox.IPs, in.Node)
		if err != nil {
			return "", in.invalid(field+".fieldRef.fieldPath", "cannot be read: %w", err)
		}
		return value, nil
	case from.ResourceFieldRef != nil:
		value, err := resourceValue(in, from.ResourceFieldRef)
		if err != nil {
			return "", in.invalid(field+".resourceFieldRef", "cannot be read: %w", err)
		}
		return value, nil
	case from.ConfigMapKeyRef != nil:
		field += ".configMapKeyRef"
	case from.SecretKeyRef != nil:
		field += ".secretKeyRef"
	case from.FileKeyRef != nil:
		field += ".fileKeyRef"
	}
	return "", in.invalid(field, "cannot be honoured yet")
}

// FieldValue returns the value of a field of a pod for the downward API (ENV-8).
// The addresses are those of the sandbox at hand, not of an older status (ENV-10).
func FieldValue(p *corev1.Pod, path string, podIPs []string, node Node) (string, error) {
	if p.Spec.HostNetwork {
		podIPs = node.HostIPs
	}
	switch path {
	case "spec.nodeName":
		if p.Spec.NodeName != "" {
			return p.Spec.NodeName, nil
		}
		return node.Name, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(node.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(node.HostIPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return fieldpath.ExtractFieldPathAsString(p, path)
}

func resourceValue(in ContainerInput, ref *corev1.ResourceFieldSelector) (string, error) {
	c := in.Container
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		if c, _ = pod.Find(&in.Pod.Spec, ref.ContainerName); c == nil {
			return "", fmt.Errorf("containerName %q is not in the pod", ref.ContainerName)
		}
	}
	return resource.ExtractContainerResourceValue(ref, withDefaults(in.Pod, c, in.Node))
}

// expand replaces references to variables in a command line (STC-10).
func expand(list []string, env []*runtimeapi.KeyValue) []string {
	values := make(map[string]string, len(env))
	for _, e := range env {
		values[e.GetKey()] = string(e.GetValue())
	}
	known := expansion.MappingFuncFor(values)
	var out []string
	for _, s := range list {
		out = append(out, expansion.Expand(s, known))
	}
	return out
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
