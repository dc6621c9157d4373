package apis

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podapi "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1api "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
)

// Default returns a copy of the pod with the defaults of the API server.
func Default(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	if out.Namespace == "" {
		out.Namespace = corev1.NamespaceDefault
	}
	corev1api.SetObjectDefaults_Pod(out)
	return out
}

// Validate applies the rules of the API server for a new pod to a defaulted
// pod. The node itself makes up no names, so generateName is not enough.
func Validate(p *corev1.Pod) field.ErrorList {
	// Upstream keeps this in a global that the first call settles: this one, as
	// nothing else imports it.
	capabilities.Setup(true, 0)
	var internal core.Pod
	// The conversion writes into shared parts of its input.
	if err := corev1api.Convert_v1_Pod_To_core_Pod(p.DeepCopy(), &internal, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	options := podapi.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	options.ResourceIsPod = true
	errs := validateCreate(&internal, options)
	if p.Name == "" && p.GenerateName != "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "generateName works only through an API server"))
	}
	return errs
}

// validateCreate lets a new pod have ephemeral containers, which the API server
// takes only through a subresource of a pod that exists: in a manifest there is
// no other place for them.
func validateCreate(p *core.Pod, options validation.PodValidationOptions) field.ErrorList {
	if len(p.Spec.EphemeralContainers) == 0 {
		return validation.ValidatePodCreate(p, options)
	}
	before, after := p.DeepCopy(), p.DeepCopy()
	before.Spec.EphemeralContainers = nil
	errs := validation.ValidatePodCreate(before, options)
	before.ResourceVersion, after.ResourceVersion = "1", "1" // an update must have one
	seen := map[string]bool{}
	for _, e := range errs {
		seen[e.Error()] = true
	}
	// The second check repeats what is wrong with the rest of the pod.
	for _, e := range validation.ValidatePodEphemeralContainersUpdate(after, before, options) {
		if !seen[e.Error()] {
			errs = append(errs, e)
		}
	}
	return errs
}

// DefaultObject returns a copy of a ConfigMap or Secret with the defaults of
// the API server; stringData of a Secret is folded into data. Other objects
// are returned as they are.
func DefaultObject(object runtime.Object) runtime.Object {
	switch o := object.(type) {
	case *corev1.ConfigMap:
		out := o.DeepCopy()
		if out.Namespace == "" {
			out.Namespace = corev1.NamespaceDefault
		}
		corev1api.SetObjectDefaults_ConfigMap(out)
		return out
	case *corev1.Secret:
		out := o.DeepCopy()
		if out.Namespace == "" {
			out.Namespace = corev1.NamespaceDefault
		}
		for key, value := range out.StringData {
			if out.Data == nil {
				out.Data = map[string][]byte{}
			}
			out.Data[key] = []byte(value)
		}
		out.StringData = nil
		corev1api.SetObjectDefaults_Secret(out)
		return out
	}
	return object
}

// ValidateObject applies the rules of the API server to a defaulted ConfigMap
// or Secret. A SidecarSet is checked by the package that reads it.
func ValidateObject(object runtime.Object) field.ErrorList {
	switch o := object.(type) {
	case *corev1.ConfigMap:
		var internal core.ConfigMap
		if err := corev1api.Convert_v1_ConfigMap_To_core_ConfigMap(o.DeepCopy(), &internal, nil); err != nil {
			return field.ErrorList{field.InternalError(nil, err)}
		}
		return validation.ValidateConfigMap(&internal)
	case *corev1.Secret:
		var internal core.Secret
		if err := corev1api.Convert_v1_Secret_To_core_Secret(o.DeepCopy(), &internal, nil); err != nil {
			return field.ErrorList{field.InternalError(nil, err)}
		}
		return validation.ValidateSecret(&internal)
	}
	return nil
}
