package preflight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cniPlugin is one plug-in of a network.
type cniPlugin struct {
	Type string `json:"type"`
	IPAM struct {
		Type string `json:"type"`
	} `json:"ipam"`
}

// cniNetwork is a network configuration: a list, or one plug-in by itself.
type cniNetwork struct {
	cniPlugin

	Name    string      `json:"name"`
	Plugins []cniPlugin `json:"plugins"`
}

// network looks at the network of pods: its configuration, the plug-ins that it
// names, and what the runtime says about it, which is told only where the first
// two do not show the cause.
func (r *found) network(m Machine) []Result {
	conf, network := cniConfig(m, r.config.confDir())
	results := []Result{conf}
	if conf.Status != Fail {
		results = append(results, cniPlugins(m, network, r.config.binDirs(), r.file))
	}
	if slices.ContainsFunc(results, func(r Result) bool { return r.Status == Fail }) {
		return results
	}
	ready, message := condition(r.status, runtimeapi.NetworkReady)
	if ready {
		return append(results, ok("network", "ready"))
	}
	if load := strings.Trim(r.status.GetInfo()["lastCNILoadStatus"], `"`); load != "" && load != "OK" {
		message = load
	}
	return append(results, fail("network", "look at its log, and start it again: journalctl -u containerd; systemctl restart containerd",
		"%s says that the network is not ready: %s", r.name, message))
}

// cniConfig finds the network that the runtime takes: the first file, by name.
func cniConfig(m Machine, dir string) (Result, cniNetwork) {
	const name = "cni config"
	write := fmt.Sprintf("write one: %s/10-bridge.conflist with the plugins bridge and portmap, or install a network add-on", dir)
	entries, err := os.ReadDir(m.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(name, "run it with sudo", "cannot read %s: %v", dir, cause(err)), cniNetwork{}
	}
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return fail(name, write, "no network configuration in %s", dir), cniNetwork{}
	}
	file := files[0]
	text, err := os.ReadFile(m.path(file))
	if err != nil {
		return fail(name, "run it with sudo", "cannot read %s: %v", file, cause(err)), cniNetwork{}
	}
	var network cniNetwork
	err = json.Unmarshal(text, &network)
	correct := "correct the file; the runtime takes the first one, by name, and no other"
	switch {
	case err != nil:
		return fail(name, correct, "cannot use %s: %v", place(file, text, err), err), network
	case filepath.Ext(file) == ".conflist" && len(network.Plugins) == 0:
		return fail(name, correct, "cannot use %s: it has no plugins", file), network
	case filepath.Ext(file) != ".conflist" && network.Type == "":
		return fail(name, correct, "cannot use %s: it names no plugin as its type", file), network
	}
	message := fmt.Sprintf("network %s from %s", cmp.Or(network.Name, "without a name"), file)
	if more := len(files) - 1; more > 0 {
		message += fmt.Sprintf(", and not from %d more", more)
	}
	return ok(name, "%s", message), network
}

// place names where in a file JSON is wrong.
func place(file string, text []byte, err error) string {
	offset := int64(-1)
	if e, is := errors.AsType[*json.SyntaxError](err); is {
		offset = e.Offset
	} else if e, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		offset = e.Offset
	}
	if offset < 1 || offset > int64(len(text)) {
		return file
	}
	before := text[:offset-1] // the offset is of what follows the fault
	return fmt.Sprintf("%s:%d:%d", file, bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n'))
}

// cniPlugins looks for the programs that a network needs. Each pod has a
// loopback too, which containerd's own network brings.
func cniPlugins(m Machine, network cniNetwork, dirs []string, file string) Result {
	const name = "cni plugins"
	list := network.Plugins
	if len(list) == 0 {
		list = []cniPlugin{network.cniPlugin}
	}
	wanted := []string{"loopback"}
	for _, p := range list {
		for _, kind := range []string{p.Type, p.IPAM.Type} {
			if kind != "" && !slices.Contains(wanted, kind) {
				wanted = append(wanted, kind)
			}
		}
	}
	slices.Sort(wanted)
	missing := absent(m, wanted, dirs)
	if len(missing) == 0 {
		return ok(name, "%s in %s", strings.Join(wanted, ", "), strings.Join(dirs, ", "))
	}
	fix := "install the package containernetworking-plugins, and name its directory as bin_dir of CNI in " + file
	for _, other := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if len(absent(m, wanted, []string{other})) == 0 {
			fix = fmt.Sprintf("they are in %s: name it as bin_dir of CNI in %s, then: systemctl restart containerd", other, file)
			break
		}
	}
	return fail(name, fix, "%s not found in %s", strings.Join(missing, ", "), strings.Join(dirs, ", "))
}

// absent returns the plug-ins that none of the directories has as a program.
func absent(m Machine, plugins, dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(plugins), func(plugin string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool {
			info, err := os.Stat(m.path(filepath.Join(dir, plugin)))
			return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
		})
	})
}
