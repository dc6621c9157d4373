// Package apis decodes, defaults and validates the Kubernetes objects that
// nodelet takes. It is the only importer of k8s.io/kubernetes, whose packages
// carry no promise of stability, so the rest of the program never meets them.
//
// Decode turns the bytes of one file or HTTP body into documents, strictly:
// an unknown field is an error. Default and Validate apply the rules of the
// API server. Unsupported names, by field path, what the pod asks for and
// nodelet does not do yet: such a pod is refused, because a field that is
// ignored in silence is worse than one that is missing.
package apis
