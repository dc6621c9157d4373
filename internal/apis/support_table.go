package apis

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// supportTable says, for each type that a pod's spec is made of and for each
// of its fields, what nodelet does with it. A type that is reached only
// through refused or pointless fields needs no entry. A test fails for a field
// that is missing here, so a new release of the API cannot slip one past us.
func supportTable() map[string]rules {
	return map[string]rules{
		"PodSpec":               podSpecRules(),
		"PodSecurityContext":    podSecurityRules(),
		"Container":             containerRules(),
		"EphemeralContainer":    merge(containerRules(), honours("targetContainerName")),
		"SecurityContext":       securityRules(),
		"Volume":                volumeRules(),
		"EmptyDirVolumeSource":  emptyDirRules(),
		"HostPathVolumeSource":  honours("path", "type"),
		"VolumeMount":           volumeMountRules(),
		"ResourceRequirements":  merge(honours("limits", "requests"), refuses("dynamic resource allocation", "claims")),
		"EnvVar":                honours("name", "value", "valueFrom"),
		"EnvVarSource":          envSourceRules(),
		"ObjectFieldSelector":   honours("apiVersion", "fieldPath"),
		"ResourceFieldSelector": resourceFieldRules(),
		"ContainerPort":         honours("name", "hostPort", "containerPort", "protocol", "hostIP"),
		"ContainerRestartRule":  honours("action", "exitCodes"),
		"Probe": honours("exec", "httpGet", "tcpSocket", "grpc", "initialDelaySeconds", "timeoutSeconds", "periodSeconds",
			"successThreshold", "failureThreshold", "terminationGracePeriodSeconds"),
		"ExecAction":                      honours("command"),
		"HTTPGetAction":                   merge(honours("path", "port", "host", "scheme", "httpHeaders"), rules{"protocol": {support: refused, reason: "HTTP/2 without TLS in probes", accepts: only("HTTP1")}}),
		"HTTPHeader":                      honours("name", "value"),
		"TCPSocketAction":                 honours("port", "host"),
		"GRPCAction":                      merge(honours("port", "service"), rules{"mode": {support: refused, reason: "TLS in gRPC probes", accepts: only("Plaintext")}}),
		"PodDNSConfig":                    honours("nameservers", "searches", "options"),
		"PodDNSConfigOption":              honours("name", "value"),
		"HostAlias":                       honours("ip", "hostnames"),
		"Capabilities":                    honours("add", "drop"),
		"SeccompProfile":                  seccompRules(),
		"ContainerRestartRuleOnExitCodes": honours("operator", "values"),
	}
}

func podSpecRules() rules {
	const placed = "the pod is on this node because its manifest is"
	return merge(
		honours("volumes", "initContainers", "containers", "ephemeralContainers", "restartPolicy",
			"terminationGracePeriodSeconds", "activeDeadlineSeconds", "dnsPolicy", "dnsConfig", "hostNetwork",
			"hostPID", "hostIPC", "shareProcessNamespace", "securityContext", "hostname", "subdomain",
			"setHostnameAsFQDN", "hostnameOverride", "hostAliases"),
		ignores(placed, "nodeSelector", "nodeName", "affinity", "topologySpreadConstraints"),
		rules{"schedulerName": {support: pointless, reason: placed, accepts: only(corev1.DefaultSchedulerName)}},
		ignores("a single node has no taints", "tolerations"),
		ignores("a single node has no scheduler that could preempt", "priority", "priorityClassName", "preemptionPolicy"),
		rules{
			"enableServiceLinks":           {support: pointless, reason: "there are no Services on a single node", accepts: only("true", "false")},
			"automountServiceAccountToken": {support: refused, reason: "service account tokens", accepts: only("false")},
			"hostUsers":                    {support: refused, reason: "user namespaces", accepts: only("true")},
			"os":                           {support: refused, reason: "operating systems other than linux", accepts: linux},
		},
		refuses("service accounts", "serviceAccountName", "serviceAccount"),
		refuses("image pull secrets", "imagePullSecrets"),
		refuses("readiness gates", "readinessGates"),
		refuses("runtime classes", "runtimeClassName", "overhead"),
		refuses("scheduling gates, which would never be lifted here", "schedulingGates"),
		refuses("dynamic resource allocation", "resourceClaims"),
		refuses("resources of the pod as a whole", "resources"),
		refuses("scheduling groups", "schedulingGroup"),
		refuses("eviction responders", "evictionResponders"),
	)
}

func podSecurityRules() rules {
	return merge(
		honours("runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "seccompProfile"),
		rules{"supplementalGroupsPolicy": {support: refused, reason: "strict supplemental groups", accepts: only("Merge")}},
		refuses("SELinux", "seLinuxOptions", "seLinuxChangePolicy"),
		refuses("Windows", "windowsOptions"),
		refuses("file system groups", "fsGroup", "fsGroupChangePolicy"),
		refuses("sysctls", "sysctls"),
		refuses("AppArmor", "appArmorProfile"),
	)
}

func containerRules() rules {
	return merge(
		honours("name", "image", "command", "args", "workingDir", "ports", "env", "resources", "restartPolicy",
			"restartPolicyRules", "volumeMounts", "terminationMessagePath", "terminationMessagePolicy",
			"imagePullPolicy", "securityContext", "stdin", "stdinOnce", "tty",
			"livenessProbe", "readinessProbe", "startupProbe"),
		rules{"resizePolicy": {support: refused, reason: "a resize policy that restarts the container", accepts: restartNotRequired}},
		refuses("environment from a ConfigMap or Secret", "envFrom"),
		refuses("block volumes", "volumeDevices"),
		refuses("lifecycle hooks and stop signals", "lifecycle"),
	)
}

func securityRules() rules {
	return merge(
		honours("capabilities", "privileged", "runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem",
			"allowPrivilegeEscalation", "seccompProfile"),
		rules{"procMount": {support: refused, reason: "an unmasked /proc", accepts: only("Default")}},
		refuses("SELinux", "seLinuxOptions"),
		refuses("Windows", "windowsOptions"),
		refuses("AppArmor", "appArmorProfile"),
	)
}

func volumeRules() rules {
	return merge(
		honours("name", "emptyDir", "hostPath"),
		refuses("volumes from ConfigMaps", "configMap"),
		refuses("volumes from Secrets", "secret"),
		refuses("downward API volumes", "downwardAPI"),
		refuses("projected volumes", "projected"),
		refuses("image volumes", "image"),
		refuses("persistent volumes", "persistentVolumeClaim", "ephemeral"),
		refuses("storage plug-ins", "csi", "nfs", "iscsi", "fc", "flexVolume", "gcePersistentDisk", "awsElasticBlockStore",
			"gitRepo", "glusterfs", "rbd", "cinder", "cephfs", "flocker", "azureFile", "vsphereVolume", "quobyte",
			"azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos"),
	)
}

func emptyDirRules() rules {
	return rules{
		"medium":    {support: refused, reason: "this medium", accepts: only("Memory")},
		"sizeLimit": {support: refused, reason: "a size limit on disk", accepts: inMemory},
		"mode":      {support: refused, reason: "the mode of an emptyDir"},
	}
}

func volumeMountRules() rules {
	return merge(
		honours("name", "readOnly", "mountPath", "subPath", "mountPropagation"),
		rules{"recursiveReadOnly": {support: refused, reason: "recursive read-only mounts", accepts: only("Disabled")}},
		refuses("subPathExpr", "subPathExpr"),
		refuses("options of bind mounts", "bindMountOptions"),
	)
}

func envSourceRules() rules {
	return merge(
		honours("fieldRef", "resourceFieldRef"),
		refuses("environment from a ConfigMap", "configMapKeyRef"),
		refuses("environment from a Secret", "secretKeyRef"),
		refuses("environment from a file", "fileKeyRef"),
	)
}

func resourceFieldRules() rules {
	return merge(
		honours("containerName", "divisor"),
		rules{"resource": {
			support: refused, reason: "resources other than cpu and memory",
			accepts: only("limits.cpu", "limits.memory", "requests.cpu", "requests.memory"),
		}},
	)
}

func seccompRules() rules {
	return merge(
		rules{"type": {support: refused, reason: "own seccomp profiles", accepts: only("RuntimeDefault", "Unconfined")}},
		refuses("own seccomp profiles", "localhostProfile"),
	)
}

func honours(names ...string) rules { return each(rule{support: honoured}, names) }

func refuses(reason string, names ...string) rules {
	return each(rule{support: refused, reason: reason}, names)
}

func ignores(reason string, names ...string) rules {
	return each(rule{support: pointless, reason: reason}, names)
}

func each(r rule, names []string) rules {
	out := rules{}
	for _, name := range names {
		out[name] = r
	}
	return out
}

func merge(parts ...rules) rules {
	out := rules{}
	for _, part := range parts {
		maps.Copy(out, part)
	}
	return out
}

// linux accepts a pod that says what it would get anyway.
func linux(_, v reflect.Value) bool {
	os, ok := reflect.TypeAssert[*corev1.PodOS](v)
	return ok && os.Name == corev1.Linux
}

// inMemory accepts a size limit that becomes the size of a tmpfs.
func inMemory(parent, _ reflect.Value) bool {
	source, ok := reflect.TypeAssert[corev1.EmptyDirVolumeSource](parent)
	return ok && source.Medium == corev1.StorageMediumMemory
}

// restartNotRequired accepts the policy that the API server fills in.
func restartNotRequired(_, v reflect.Value) bool {
	policies, ok := reflect.TypeAssert[[]corev1.ContainerResizePolicy](v)
	if !ok {
		return false
	}
	for _, p := range policies {
		if p.RestartPolicy != corev1.NotRequired {
			return false
		}
	}
	return true
}
