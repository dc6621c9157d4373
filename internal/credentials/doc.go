// Package credentials answers which credentials a registry may accept for an
// image: those of docker config files and of credential-provider plugins of the
// kubelet's kind. Matching is upstream's own, so that a file that works for a
// kubelet works here; that is why this package, besides internal/apis, imports
// k8s.io/kubernetes.
//
// Files are looked at again for each image, so a change needs no restart. What
// cannot be used is told once per version of its file and takes nothing else
// away. Secrets never appear in errors, warnings or printed values.
package credentials
