package convert

import (
	"encoding/json"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Labels that sandboxes and containers carry (STC-7). Tools such as crictl and
// log collectors read the io.kubernetes ones.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
	// LabelOwned marks what nodelet made. Nothing without it is ever changed.
	LabelOwned = "nodelet.dev/owned"

	ownedValue = "true"
)

// Annotations that sandboxes and containers carry (STC-8).
const (
	AnnotationHash                = "io.kubernetes.container.hash"
	AnnotationRestartCount        = "io.kubernetes.container.restartCount"
	AnnotationTerminationPath     = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationPolicy   = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPorts               = "io.kubernetes.container.ports"
	AnnotationPodGracePeriod      = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationContainerKind       = "nodelet.dev/container-kind"
	AnnotationContainerImage      = "nodelet.dev/image"
	AnnotationSpecHash            = "nodelet.dev/spec-hash"
	AnnotationSource              = "nodelet.dev/source"
	AnnotationOrigin              = "nodelet.dev/origin"
	defaultTerminationGracePeriod = int64(corev1.DefaultTerminationGracePeriodSeconds)
)

// OwnedSelector selects everything that nodelet made.
func OwnedSelector() map[string]string { return map[string]string{LabelOwned: ownedValue} }

// PodSelector selects what nodelet made for one pod.
func PodSelector(uid string) map[string]string {
	return map[string]string{LabelOwned: ownedValue, LabelPodUID: uid}
}

func identityLabels(p *corev1.Pod) map[string]string {
	return map[string]string{
		LabelPodName:      p.Name,
		LabelPodNamespace: p.Namespace,
		LabelPodUID:       string(p.UID),
		LabelOwned:        ownedValue,
	}
}

func identityAnnotations(p *corev1.Pod, specHash string) map[string]string {
	a := map[string]string{AnnotationPodGracePeriod: strconv.FormatInt(pod.GracePeriod(p), 10)}
	setIf(a, AnnotationSpecHash, specHash)
	setIf(a, AnnotationSource, pod.Source(p))
	setIf(a, AnnotationOrigin, pod.Origin(p))
	return a
}

// sandboxLabels are the pod's own labels; the identity wins (SB-1).
func sandboxLabels(p *corev1.Pod) map[string]string {
	labels := maps.Clone(p.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, identityLabels(p))
	return labels
}

// sandboxAnnotations are the pod's own annotations; the identity wins. A pod
// that writes one of our annotations itself does not get it through, even where
// we have nothing to write.
func sandboxAnnotations(p *corev1.Pod, specHash string) map[string]string {
	annotations := maps.Clone(p.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, name := range []string{AnnotationSpecHash, AnnotationSource, AnnotationOrigin} {
		delete(annotations, name)
	}
	maps.Copy(annotations, identityAnnotations(p, specHash))
	return annotations
}

func containerLabels(p *corev1.Pod, name string) map[string]string {
	labels := identityLabels(p)
	labels[LabelContainerName] = name
	return labels
}

func containerAnnotations(in ContainerInput) map[string]string {
	a := identityAnnotations(in.Pod, in.SpecHash)
	c := in.Container
	a[AnnotationHash] = pod.ContainerHash(c)
	a[AnnotationRestartCount] = strconv.FormatUint(uint64(in.Attempt), 10)
	a[AnnotationContainerKind] = in.Kind.String()
	a[AnnotationContainerImage] = c.Image
	setIf(a, AnnotationTerminationPath, c.TerminationMessagePath)
	setIf(a, AnnotationTerminationPolicy, string(c.TerminationMessagePolicy))
	if len(c.Ports) > 0 {
		// Ports hold numbers and strings only, which JSON can always express.
		if text, err := json.Marshal(c.Ports); err == nil {
			a[AnnotationPorts] = string(text)
		}
	}
	return a
}

func setIf(m map[string]string, key, value string) {
	if value != "" {
		m[key] = value
	}
}
