package apis

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString("  " + line)
	}
	return b.String()
}

func decodePod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	documents, errs := Decode([]byte(text))
	require.Empty(t, errs)
	require.Len(t, documents, 1)
	return as[*corev1.Pod](t, documents[0].Object)
}

func as[T any](t *testing.T, v any) T {
	t.Helper()
	out, ok := v.(T)
	require.Truef(t, ok, "%T", v)
	return out
}

const plain = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - name: main
    image: busybox
`

func TestDecodeSeveralDocuments(t *testing.T) {
	text := "# a comment\n---\n" + fmt.Sprintf(plain, "one") + "---\n# nothing here\n--- \n" + fmt.Sprintf(plain, "two") + "...\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  text: |\n    a\n     --- b\n"
	documents, errs := Decode([]byte(text))
	require.Empty(t, errs)
	require.Len(t, documents, 3)
	require.Equal(t, []int{3, 13, 22}, []int{documents[0].Line, documents[1].Line, documents[2].Line})
	require.Equal(t, []int{0, 1, 2}, []int{documents[0].Index, documents[1].Index, documents[2].Index})
	require.Equal(t, "two", as[*corev1.Pod](t, documents[1].Object).Name)
	require.Equal(t, KindConfigMap, documents[2].Kind)
	require.Equal(t, 19, documents[1].LineOf("spec.containers[0].image"))
}

func TestDecodeLists(t *testing.T) {
	text := `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a}
  spec: {containers: [{name: x, image: i}]}
- apiVersion: v1
  kind: Secret
  metadata: {name: s}
- apiVersion: v1
  kind: Pod
  metadata: {name: b}
  spec:
    containers:
    - name: x
      imag: y
`
	documents, errs := Decode([]byte(text))
	require.Len(t, documents, 2)
	require.Equal(t, 8, documents[1].Line)
	require.Len(t, errs, 1)
	require.Equal(t, `cannot decode Pod "b" at line 17: spec.containers[0].imag: unknown field; did you mean "image"?`, errs[0].Error())
	require.Equal(t, 2, errs[0].Index)

	documents, errs = Decode([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[]}}]}`))
	require.Empty(t, errs)
	require.Len(t, documents, 1)
	require.Equal(t, "Pod", documents[0].Object.GetObjectKind().GroupVersionKind().Kind)
}

func TestDecodeJSONStream(t *testing.T) {
	one := `{"apiVersion":"v1","kind":"ConfigMap",` + "\n\t" + `"metadata":{"name":"%s"}}`
	documents, errs := Decode(fmt.Appendf(nil, "\xef\xbb\xbf"+one+"\n"+one, "a", "b"))
	require.Empty(t, errs)
	require.Len(t, documents, 2)
	require.Equal(t, 3, documents[1].Line)
}

func TestDecodeSidecarSet(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		documents, errs := Decode([]byte("apiVersion: apps.kruise.io/" + version + "\nkind: SidecarSet\nmetadata: {name: s}\nspec: {any: 1}\n"))
		require.Empty(t, errs)
		u, ok := documents[0].Object.(*unstructured.Unstructured)
		require.True(t, ok)
		require.Equal(t, int64(1), as[map[string]any](t, u.Object["spec"])["any"])
	}
}

// What is refused says which object, which field, on which line, and why.
func TestDecodeErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"syntax", "apiVersion: v1\nkind: Pod\nmetadata: {name: a\nspec: x: y\n", "cannot decode object 1 of the file at line 3: yaml: line 3: did not find expected ',' or '}'"},
		{"truncated json", `{"apiVersion":"v1","kind":"Pod","metadata":{"na`, "cannot decode object 1 of the file at line 1: "},
		{"not an object", "- a\n- b\n", "cannot decode object 1 of the file at line 1: the document is not an object with apiVersion and kind"},
		{"text", "hello", "the document is not an object"},
		{"no kind", "apiVersion: v1\nmetadata: {name: a}", "kind: must be set, for example to Pod"},
		{"other kind", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}", `cannot decode PersistentVolumeClaim "a" at line 2: kind: PersistentVolumeClaim (v1) is not a kind that this node takes; it takes Pod, ConfigMap, Secret, SidecarSet`},
		{"misspelt kind", "apiVersion: v1\nkind: pod\nmetadata: {name: a}", `did you mean "Pod"?`},
		{"version", "apiVersion: v2\nkind: Pod\nmetadata: {name: a}", `cannot decode Pod "a" at line 1: apiVersion: Pod has no version "v2" here; use v1`},
		{"no version", "kind: Pod\nmetadata: {name: a}", "apiVersion: must be set to v1"},
		{"unknown", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ns}\nspec:\n  containrs: []\n", `cannot decode Pod ns/a at line 5: spec.containrs: unknown field; did you mean "containers"?`},
		{"unknown, nothing near", "apiVersion: v1\nkind: Pod\nspec:\n  zzz: []\n", "spec.zzz: unknown field"},
		{"duplicate", "apiVersion: v1\nkind: Pod\nkind: Pod\n", `line 3: key "kind" already set in map`},
		{"duplicate in json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","name":"b"}}`, ""},
		{"type", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: x\n    ports:\n    - containerPort: 1\n    - containerPort: http\n", `cannot decode Pod "a" at line 9: spec.containers[0].ports[1].containerPort: must be a whole number, got string`},
		{"quantity", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: x\n    resources:\n      limits:\n        memory: lots\n", `at line 9: spec.containers[0].resources.limits[memory]: cannot use "lots" as a quantity such as "500m" or "64Mi": `},
		{"list of what", "apiVersion: v1\nkind: List\nitems: 3\n", "cannot decode List 1 of the file at line 3: items: must be a list of objects"},
		{"bad name", "apiVersion: v1\nkind: Pod\nmetadata: {name: 3}\n", "metadata.name: must be a string, got number; put it in quotes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			documents, errs := Decode([]byte(tt.text))
			require.Empty(t, documents)
			require.NotEmpty(t, errs)
			require.Contains(t, errs[0].Error(), tt.want)
		})
	}
}

// One broken document does not take the others with it.
func TestDecodeKeepsTheRest(t *testing.T) {
	documents, errs := Decode([]byte(fmt.Sprintf(plain, "a") + "---\n: : :\n\tx\n---\n" + fmt.Sprintf(plain, "b")))
	require.Len(t, errs, 1)
	require.Equal(t, 8, errs[0].Line)
	require.Len(t, documents, 2)
	require.Equal(t, 2, documents[1].Index)
}

func TestDecodeEmpty(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# x\n---\n...\n", "null", "---\n---\n"} {
		documents, errs := Decode([]byte(text))
		require.Empty(t, documents)
		require.Empty(t, errs)
	}
}

func TestValidate(t *testing.T) {
	pod := decodePod(t, fmt.Sprintf(plain, "ok"))
	require.Empty(t, Validate(Default(pod)))
	require.Empty(t, pod.Namespace, "defaulting works on a copy")

	bad := decodePod(t, `{apiVersion: v1, kind: Pod, metadata: {name: "Bad Name"}, spec: {restartPolicy: Sometimes, containers: [{name: a, image: b, volumeMounts: [{name: gone, mountPath: /x}]}]}}`)
	var fields []string
	for _, e := range Validate(Default(bad)) {
		fields = append(fields, e.Field)
	}
	require.ElementsMatch(t, []string{"metadata.name", "spec.restartPolicy", "spec.containers[0].volumeMounts[0].name"}, fields)

	nameless := decodePod(t, `{apiVersion: v1, kind: Pod, metadata: {generateName: a-}, spec: {containers: [{name: a, image: b}]}}`)
	require.Equal(t, "metadata.name", Validate(Default(nameless))[0].Field)
}

// Whatever the support table honours passes the validation of the API server,
// ephemeral containers and restart rules included.
func TestValidateWide(t *testing.T) {
	text, err := os.ReadFile("testdata/wide.yaml")
	require.NoError(t, err)
	pod := Default(decodePod(t, string(text)))
	require.Empty(t, Validate(pod))
	require.Empty(t, Unsupported(pod))
	require.Empty(t, WithoutEffect(pod))

	pod.Spec.EphemeralContainers[0].Name = "main"
	pod.Spec.Hostname = "no_host"
	var fields []string
	for _, e := range Validate(pod) {
		fields = append(fields, e.Field)
	}
	require.ElementsMatch(t, []string{"spec.ephemeralContainers[0].name", "spec.hostname"}, fields)
}

func TestDefault(t *testing.T) {
	pod := Default(decodePod(t, fmt.Sprintf(plain, "a")))
	require.Equal(t, "default", pod.Namespace)
	require.Equal(t, corev1.RestartPolicyAlways, pod.Spec.RestartPolicy)
	require.Equal(t, corev1.PullAlways, pod.Spec.Containers[0].ImagePullPolicy)
	require.Equal(t, int64(30), *pod.Spec.TerminationGracePeriodSeconds)
	require.Empty(t, Unsupported(pod))
}

func TestObjects(t *testing.T) {
	documents, errs := Decode([]byte("{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {'bad/key': x}}"))
	require.Empty(t, errs)
	secret := as[*corev1.Secret](t, DefaultObject(documents[0].Object))
	require.Empty(t, ValidateObject(secret))
	require.Equal(t, corev1.SecretTypeOpaque, secret.Type)
	require.Equal(t, []byte("b"), secret.Data["a"])
	require.Equal(t, "data[bad/key]", ValidateObject(DefaultObject(documents[1].Object))[0].Field)
}

// Whatever the bytes, decoding ends without a panic, every error has words, and
// defaulting, validation and the support check take whatever came out.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(plain, "a")))
	f.Add([]byte("a: &a [*a]\n---\n{"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[null,1,{"kind":"Pod"}]}`))
	if text, err := os.ReadFile("testdata/wide.yaml"); err == nil {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, errs := Decode(data)
		for _, e := range errs {
			if e.Detail == "" || e.Line < 1 {
				t.Fatalf("error without words or line: %#v", e)
			}
		}
		for _, d := range documents {
			if p, ok := d.Object.(*corev1.Pod); ok {
				p = Default(p)
				Validate(p)
				Unsupported(p)
			} else {
				ValidateObject(DefaultObject(d.Object))
			}
		}
	})
}
