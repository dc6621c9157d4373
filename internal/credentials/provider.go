package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	matching "k8s.io/kubernetes/pkg/credentialprovider"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxCached bounds the answers that one plugin's cache holds.
const maxCached = 1000

// globalKey is the cache key of answers that are good for all images. No image
// has that name.
const globalKey = "*"

// provider is one plugin and what it answered.
type provider struct {
	config  kubeletconfig.CredentialProvider
	path    string // of the program
	timeout time.Duration
	flights singleflight.Group

	mu    sync.Mutex // guards cache
	cache map[string]cached
}

type cached struct {
	ring *ring
	ends time.Time
}

// readProviders reads one version of the configuration of plugins. Of one that
// cannot be used the last good version stays in use, and pulls tell of it.
func readProviders(path, binDir string, at stamp, old providerState) providerState {
	state := providerState{stamp: at}
	config, err := readProviderConfig(path)
	if err != nil {
		state.err, state.list = err, old.list
		return state
	}
	for i := range config.Providers {
		c := config.Providers[i]
		state.list = append(state.list, &provider{
			config: c, path: filepath.Join(binDir, c.Name), timeout: pluginTimeout, cache: map[string]cached{},
		})
	}
	return state
}

func readProviderConfig(path string) (*kubeletconfig.CredentialProviderConfig, error) {
	text, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration of credential providers: %w", err)
	}
	var c kubeletconfig.CredentialProviderConfig
	if err := decodeStrict(text, &c); err != nil {
		return nil, fmt.Errorf("cannot use the configuration of credential providers %s: %w", path, err)
	}
	if want := kubeletconfig.SchemeGroupVersion.String(); c.APIVersion != want || c.Kind != "CredentialProviderConfig" {
		return nil, fmt.Errorf("cannot use the configuration of credential providers %s: it must be a CredentialProviderConfig of %s, and it is a %q of %q",
			path, want, c.Kind, c.APIVersion)
	}
	if err := validate(c.Providers).ToAggregate(); err != nil {
		return nil, fmt.Errorf("cannot use the configuration of credential providers %s: %w", path, err)
	}
	return &c, nil
}

// decodeStrict names unknown fields by their path.
func decodeStrict(text []byte, into any) error {
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, into)
	return errors.Join(append(strict, err)...)
}

func validate(providers []kubeletconfig.CredentialProvider) field.ErrorList {
	var faults field.ErrorList
	root := field.NewPath("providers")
	if len(providers) == 0 {
		faults = append(faults, field.Required(root, "at least one provider"))
	}
	seen := map[string]bool{}
	for i := range providers {
		p, at := &providers[i], root.Index(i)
		switch {
		case p.Name == "":
			faults = append(faults, field.Required(at.Child("name"), "the name of the program"))
		case p.Name == ".", p.Name == "..", strings.ContainsAny(p.Name, "/ "):
			faults = append(faults, field.Invalid(at.Child("name"), p.Name, "it must be the name of a program, without / and spaces"))
		case seen[p.Name]:
			faults = append(faults, field.Duplicate(at.Child("name"), p.Name))
		}
		seen[p.Name] = true
		faults = append(faults, validateProvider(p, at)...)
	}
	return faults
}

func validateProvider(p *kubeletconfig.CredentialProvider, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	if want := credentialprovider.SchemeGroupVersion.String(); p.APIVersion != want {
		faults = append(faults, field.NotSupported(at.Child("apiVersion"), p.APIVersion, []string{want}))
	}
	if len(p.MatchImages) == 0 {
		faults = append(faults, field.Required(at.Child("matchImages"), "at least one pattern"))
	}
	for i, m := range p.MatchImages {
		_, err := matching.URLsMatchStr(m, m)
		if err != nil {
			faults = append(faults, field.Invalid(at.Child("matchImages").Index(i), m, err.Error()))
		}
	}
	switch d := p.DefaultCacheDuration; {
	case d == nil:
		faults = append(faults, field.Required(at.Child("defaultCacheDuration"), "how long an answer is kept that does not say so; 0s is allowed"))
	case d.Duration < 0:
		faults = append(faults, field.Invalid(at.Child("defaultCacheDuration"), d.Duration.String(), "it must not be negative"))
	}
	if p.TokenAttributes != nil {
		faults = append(faults, field.Forbidden(at.Child("tokenAttributes"), "this node has no service accounts"))
	}
	return faults
}

// executable tells why the program cannot be run.
func (p *provider) executable() error {
	info, err := os.Stat(p.path)
	if err == nil && (info.IsDir() || info.Mode().Perm()&0o111 == 0) {
		err = errors.New("it is not an executable file")
	}
	if err != nil {
		return fmt.Errorf("cannot run credential provider %s at %s: %w", p.config.Name, p.path, err)
	}
	return nil
}

func (p *provider) matches(repository string) bool {
	for _, m := range p.config.MatchImages {
		if ok, err := matching.URLsMatchStr(m, repository); err == nil && ok {
			return true
		}
	}
	return false
}

// lookup answers from the cache, else from the plugin, which runs once for all
// who ask the same at the same time.
func (p *provider) lookup(ctx context.Context, repository string) ([]Auth, error) {
	if r, ok := p.cached(repository, time.Now()); ok {
		return r.lookup(repository), nil
	}
	for {
		flight := p.flights.DoChan(repository, func() (any, error) { return p.ask(ctx, repository) })
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot ask credential provider %s: %w", p.config.Name, ctx.Err())
		case result := <-flight:
			if errors.Is(result.Err, context.Canceled) && ctx.Err() == nil {
				continue // whoever asked first gave up; we did not
			}
			if r, ok := result.Val.(*ring); ok && result.Err == nil {
				return r.lookup(repository), nil
			}
			return nil, result.Err
		}
	}
}

// ask runs the plugin and keeps what it answered as long as the answer says.
func (p *provider) ask(ctx context.Context, repository string) (*ring, error) {
	response, err := p.run(ctx, repository)
	if err != nil {
		return nil, err
	}
	var key string
	switch response.CacheKeyType {
	case credentialprovider.ImagePluginCacheKeyType:
		key = repository
	case credentialprovider.RegistryPluginCacheKeyType:
		key = registryOf(repository)
	case credentialprovider.GlobalPluginCacheKeyType:
		key = globalKey
	default:
		return nil, fmt.Errorf("cannot use the answer of credential provider %s: cacheKeyType: %q is not Image, Registry or Global", p.config.Name, response.CacheKeyType)
	}
	keep := p.config.DefaultCacheDuration.Duration
	if d := response.CacheDuration; d != nil {
		keep = d.Duration
	}
	if keep < 0 {
		return nil, fmt.Errorf("cannot use the answer of credential provider %s: cacheDuration: %s is negative", p.config.Name, keep)
	}
	r := newRing(p.entries(response))
	if keep > 0 {
		p.keep(key, r, time.Now(), keep)
	}
	return r, nil
}

// entries returns the credentials of an answer; the order of equal keys does
// not matter, since a map has none.
func (p *provider) entries(response *credentialprovider.CredentialProviderResponse) []entry {
	var entries []entry
	for key, a := range response.Auth {
		entries = append(entries, entry{key: key, auth: Auth{
			Username: a.Username, Password: a.Password, Source: fmt.Sprintf("credential provider %s (entry %q)", p.config.Name, key),
		}})
	}
	return entries
}

func (p *provider) cached(repository string, now time.Time) (*ring, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range []string{repository, registryOf(repository), globalKey} {
		if c, ok := p.cache[key]; ok && now.Before(c.ends) {
			return c.ring, true
		}
	}
	return nil, false
}

func (p *provider) keep(key string, r *ring, now time.Time, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, c := range p.cache {
		if !now.Before(c.ends) {
			delete(p.cache, k)
		}
	}
	if len(p.cache) >= maxCached {
		clear(p.cache) // asking again is cheap
	}
	p.cache[key] = cached{ring: r, ends: now.Add(d)}
}

func registryOf(repository string) string {
	registry, _, _ := strings.Cut(repository, "/")
	return registry
}
