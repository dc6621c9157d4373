package agent

import (
	"encoding/json"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/server"
	"nodelet.dev/nodelet/internal/source"
)

// feeds returns the configured sources, each with what it delivered before.
func (a *Agent) feeds(instances []pod.Instance) []feed {
	good := map[string]map[string][]*corev1.Pod{} // by source and origin
	for _, in := range instances {
		if in.Record.Stop != nil && in.Record.Stop.Delete {
			continue
		}
		name, origin := pod.Source(in.User), pod.Origin(in.User)
		if good[name] == nil {
			good[name] = map[string][]*corev1.Pod{}
		}
		good[name][origin] = append(good[name][origin], in.User)
	}
	var list []feed
	if a.cfg.StaticPodPath != "" {
		f := &source.File{Path: a.cfg.StaticPodPath, ScanEvery: a.cfg.FileCheckFrequency.Duration, LastGood: good[source.FileName]}
		list = append(list, feed{name: source.FileName, origin: a.cfg.StaticPodPath, run: f.Run, problems: f.Problems, reload: func(c config.Configuration) {
			f.Rescan(c.FileCheckFrequency.Duration)
		}})
	}
	if a.cfg.StaticPodURL != "" {
		h := &source.HTTP{URL: a.cfg.StaticPodURL, Header: a.cfg.StaticPodURLHeader, Every: a.cfg.HTTPCheckFrequency.Duration, LastGood: good[source.HTTPName]}
		origin := a.cfg.StaticPodURL
		if u, err := url.Parse(origin); err == nil {
			origin = u.Redacted()
		}
		list = append(list, feed{name: source.HTTPName, origin: origin, run: h.Run, problems: h.Problems, reload: func(c config.Configuration) {
			h.Fetch(c.StaticPodURLHeader, c.HTTPCheckFrequency.Duration)
		}})
	}
	return list
}

// sourceView is what others may know of the sources. It is immutable.
type sourceView struct {
	delivered map[string]int // pods in the newest set, by source
	listed    bool
	missing   string // sources that have not spoken
}

// publishSources shows the state of the sources to the server.
func (a *Agent) publishSources() {
	v := &sourceView{delivered: map[string]int{}, listed: a.desired.listed, missing: a.desired.missingSources()}
	for name, set := range a.desired.sources {
		v.delivered[name] = len(set.Pods)
	}
	a.known.Store(v)
}

// sourceStates describes the sources.
func (a *Agent) sourceStates() []server.SourceState {
	v := a.known.Load()
	list := []server.SourceState{}
	for _, s := range a.sources {
		pods, delivered := v.delivered[s.name]
		state := server.SourceState{Name: s.name, Origin: s.origin, Delivered: delivered, Pods: pods}
		for _, p := range s.problems() {
			state.Problems = append(state.Problems, p.Message)
		}
		list = append(list, state)
	}
	return list
}

// keepObjects stores the ConfigMaps, Secrets and SidecarSets of a set for those
// that use them, and forgets those of the source that are gone.
func (a *Agent) keepObjects(set source.Set) {
	keep := map[string]map[string][]byte{"ConfigMap": {}, "Secret": {}, "SidecarSet": {}}
	add := func(kind, namespace, name string, object any) {
		raw, err := json.Marshal(object)
		if err != nil {
			klog.ErrorS(err, "Cannot encode an object", "kind", kind, "namespace", namespace, "name", name)
			return
		}
		keep[kind][pod.Key{Namespace: namespace, Name: name}.String()] = raw
	}
	for _, o := range set.ConfigMaps {
		add("ConfigMap", o.Namespace, o.Name, o)
	}
	for _, o := range set.Secrets {
		add("Secret", o.Namespace, o.Name, o)
	}
	for _, o := range set.SidecarSets {
		add("SidecarSet", o.GetNamespace(), o.GetName(), o)
	}
	for kind, objects := range keep {
		if err := a.store.KeepObjects(kind, set.Source, objects); err != nil {
			klog.ErrorS(err, "Cannot store objects", "kind", kind, "source", set.Source)
		}
	}
}
