package apis

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// Every field of a pod's spec is classified, and the table names none that
// does not exist.
func TestSupportTableIsComplete(t *testing.T) {
	table := supportTable()
	reached := map[string]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(typ.Elem())
		case reflect.Struct:
			if reached[typ.Name()] || typ.PkgPath() != "k8s.io/api/core/v1" {
				return
			}
			reached[typ.Name()] = true
			of, ok := table[typ.Name()]
			if !ok {
				t.Errorf("type %s is honoured and has no table", typ.Name())
				return
			}
			names := map[string]bool{}
			for _, f := range fieldsOf(typ) {
				names[f.name] = true
				r, ok := of[f.name]
				if !ok {
					t.Errorf("%s.%s is not classified", typ.Name(), f.name)
					continue
				}
				if r.support != honoured && r.reason == "" {
					t.Errorf("%s.%s has no reason", typ.Name(), f.name)
				}
				if r.support == honoured {
					visit(f.t)
				}
			}
			for name := range of {
				if !names[name] {
					t.Errorf("%s.%s does not exist", typ.Name(), name)
				}
			}
		default:
		}
	}
	visit(reflect.TypeFor[corev1.PodSpec]())
	for name := range table {
		if !reached[name] {
			t.Errorf("table %s is never reached", name)
		}
	}
}

func TestUnsupported(t *testing.T) {
	tests := []struct {
		name string
		spec string
		want []string
	}{
		{name: "plain", spec: "containers: [{name: a, image: b}]"},
		{name: "probe and hook", spec: `
containers:
- {name: a, image: b}
- name: c
  image: d
  livenessProbe: {tcpSocket: {port: 80}}
  lifecycle: {preStop: {sleep: {seconds: 3}}}`, want: []string{"spec.containers[1].lifecycle"}},
		{name: "volumes", spec: `
containers: [{name: a, image: b}]
volumes:
- {name: v, configMap: {name: x}}
- {name: w, emptyDir: {sizeLimit: 1Gi}}
- {name: x, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
- {name: huge, emptyDir: {medium: HugePages}}
- {name: z, hostPath: {path: /tmp, type: Directory}}`, want: []string{
			"spec.volumes[0].configMap", "spec.volumes[1].emptyDir.sizeLimit", "spec.volumes[3].emptyDir.medium",
		}},
		{name: "resources", spec: `
containers:
- name: a
  image: b
  resources: {limits: {cpu: 1, memory: 1Gi}, requests: {ephemeral-storage: 1Gi}}`, want: []string{"spec.containers[0].resources.requests[ephemeral-storage]"}},
		{name: "values that mean nothing", spec: `
containers: [{name: a, image: b, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}], securityContext: {procMount: Default}}]
hostUsers: true
automountServiceAccountToken: false
os: {name: linux}
schedulerName: default-scheduler
enableServiceLinks: false`},
		{name: "values that mean something", spec: `
containers: [{name: a, image: b, securityContext: {seccompProfile: {type: Localhost, localhostProfile: x}}}]
hostUsers: false
os: {name: windows}
serviceAccountName: robot
imagePullSecrets: [{name: x}]`, want: []string{
			"spec.containers[0].securityContext.seccompProfile.type", "spec.containers[0].securityContext.seccompProfile.localhostProfile",
			"spec.hostUsers", "spec.os", "spec.serviceAccountName", "spec.imagePullSecrets",
		}},
		{name: "environment", spec: `
containers:
- name: a
  image: b
  envFrom: [{configMapRef: {name: x}}]
  env:
  - {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}
  - {name: C, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage}}}
  - {name: D, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}`, want: []string{
			"spec.containers[0].envFrom", "spec.containers[0].env[1].valueFrom.secretKeyRef",
			"spec.containers[0].env[2].valueFrom.resourceFieldRef.resource",
		}},
		{name: "ephemeral", spec: `
containers: [{name: a, image: b}]
ephemeralContainers: [{name: d, image: e, targetContainerName: a, volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(X)}]}]`, want: []string{
			"spec.ephemeralContainers[0].volumeMounts[0].subPathExpr",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := decodePod(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"+indent(tt.spec))
			for _, p := range []*corev1.Pod{pod, Default(pod)} {
				var got []string
				for _, e := range Unsupported(p) {
					got = append(got, e.Field)
					require.Contains(t, e.Detail, "not supported yet: ")
				}
				require.ElementsMatch(t, withoutAliases(tt.want), withoutAliases(got))
			}
		})
	}
}

// withoutAliases drops the deprecated twin that defaulting keeps in step.
func withoutAliases(fields []string) []string {
	out := []string{}
	for _, f := range fields {
		if f != "spec.serviceAccount" {
			out = append(out, f)
		}
	}
	return out
}

func TestUnsupportedAnnotations(t *testing.T) {
	pod := decodePod(t, `{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {container.apparmor.security.beta.kubernetes.io/a: localhost/x, container.apparmor.security.beta.kubernetes.io/b: runtime/default, other: x}}}`)
	errs := Unsupported(pod)
	require.Len(t, errs, 1)
	require.Equal(t, "metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]", errs[0].Field)
}

func TestWithoutEffect(t *testing.T) {
	pod := decodePod(t, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeSelector: {a: b}, priority: 3, containers: [{name: a, image: b}]}}`)
	require.Equal(t, []string{
		"spec.nodeSelector has no effect: the pod is on this node because its manifest is",
		"spec.priority has no effect: a single node has no scheduler that could preempt",
	}, WithoutEffect(Default(pod)))
}
