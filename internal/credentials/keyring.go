package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// Reasons of warnings, as event reasons.
const (
	ReasonCredentials = "RegistryCredentialsInvalid"
	ReasonMode        = "RegistryCredentialsExposed"
	ReasonProviders   = "CredentialProviderInvalid"
)

// Options configure a Keyring. The zero value knows no credentials.
type Options struct {
	// Files are docker config files. One that does not exist is fine.
	Files []string
	// ProviderConfigFile is a CredentialProviderConfig of kubelet.config.k8s.io/v1,
	// and ProviderBinDir holds the programs that it names.
	ProviderConfigFile string
	ProviderBinDir     string
	// Warn is told of what cannot be used, once per version of its file. It must
	// be quick and safe for concurrent use.
	Warn func(reason, message string)
}

// Keyring finds credentials for images. Its methods are safe for concurrent use.
type Keyring struct {
	o      Options
	latest atomic.Pointer[snapshot]
}

// snapshot is what the files said at one time. It is never changed.
type snapshot struct {
	files     []fileState
	ring      *ring
	providers providerState
}

// fileState is one version of a docker config file.
type fileState struct {
	stamp   stamp
	entries []entry
}

// providerState is one version of the configuration of plugins.
type providerState struct {
	stamp stamp
	list  []*provider
	err   error
}

// warning is something to tell.
type warning struct{ reason, message string }

// New returns a keyring that has read its files once, so that what is wrong
// with them is told at the start.
func New(o Options) *Keyring {
	if o.Warn == nil {
		o.Warn = func(string, string) {}
	}
	k := &Keyring{o: o}
	k.current()
	return k
}

// Lookup returns the credentials for an image, in the order in which to try
// them: those of files, most specific first, then those of plugins. The error
// tells of plugins that failed; what else was found is returned with it.
func (k *Keyring) Lookup(ctx context.Context, image string) ([]Auth, error) {
	repository, err := repositoryOf(image)
	if err != nil {
		return nil, err
	}
	s := k.current()
	found := s.ring.lookup(repository)
	failures := []error{s.providers.err}
	for _, p := range s.providers.list {
		if !p.matches(repository) {
			continue
		}
		more, err := p.lookup(ctx, repository)
		found = append(found, more...)
		failures = append(failures, err)
	}
	return found, errors.Join(failures...)
}

// current returns what the files say now. Of two lookups that find a change at
// the same time one tells of it.
func (k *Keyring) current() *snapshot {
	old := k.latest.Load()
	next, warnings := k.refresh(old)
	if next == old {
		return old
	}
	if k.latest.CompareAndSwap(old, next) {
		for _, w := range warnings {
			k.o.Warn(w.reason, w.message)
		}
	}
	return next
}

func (k *Keyring) refresh(old *snapshot) (*snapshot, []warning) {
	if old == nil {
		old = &snapshot{files: make([]fileState, len(k.o.Files))}
	}
	next := &snapshot{files: slices.Clone(old.files), ring: old.ring, providers: old.providers}
	var warnings []warning
	changed := old.ring == nil
	for i, path := range k.o.Files {
		at := stampOf(path)
		if at == old.files[i].stamp {
			continue
		}
		changed = true
		state, more := readFile(path, at, old.files[i])
		next.files[i], warnings = state, append(warnings, more...)
	}
	if changed {
		var all []entry
		for _, f := range next.files {
			all = append(all, f.entries...)
		}
		next.ring = newRing(all)
	}
	if path := k.o.ProviderConfigFile; path != "" {
		if at := stampOf(path); at != old.providers.stamp || old.ring == nil {
			changed = true
			next.providers = readProviders(path, k.o.ProviderBinDir, at, old.providers)
			if err := next.providers.err; err != nil {
				warnings = append(warnings, warning{ReasonProviders, err.Error()})
			}
			for _, p := range next.providers.list {
				if err := p.executable(); err != nil {
					warnings = append(warnings, warning{ReasonProviders, err.Error()})
				}
			}
		}
	}
	if !changed {
		return old, nil
	}
	return next, warnings
}

// readFile reads one version of a file. Of one that cannot be read the last good
// version goes on to be used, since somebody may be writing it.
func readFile(path string, at stamp, old fileState) (fileState, []warning) {
	state := fileState{stamp: at}
	if !at.exists {
		return state, nil
	}
	var warnings []warning
	if at.mode.Perm()&0o077 != 0 {
		warnings = append(warnings, warning{ReasonMode, fmt.Sprintf(
			"the registry credentials of %s can be read by others (mode %04o): chmod 600 %s", path, at.mode.Perm(), path)})
	}
	var problems []string
	var err error
	state.entries, problems, err = readDocker(path)
	if err != nil {
		state.entries = old.entries
		message := err.Error()
		if len(old.entries) > 0 {
			message += "; the credentials that were read before stay in use"
		}
		problems = append(problems, message)
	}
	for _, p := range problems {
		warnings = append(warnings, warning{ReasonCredentials, p})
	}
	return state, warnings
}
