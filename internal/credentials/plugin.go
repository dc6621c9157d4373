package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// Bounds of one run of a plugin: the time is upstream's.
const (
	pluginTimeout = time.Minute
	pluginGrace   = 2 * time.Second // for children that hold the output open
	maxAnswer     = 1 << 20
	maxComplaint  = 2 << 10
)

// run asks the plugin once: the request on its standard input, the response on
// its standard output.
func (p *provider) run(ctx context.Context, repository string) (*credentialprovider.CredentialProviderResponse, error) {
	request, err := json.Marshal(&credentialprovider.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.config.APIVersion, Kind: "CredentialProviderRequest"}, Image: repository,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot ask credential provider %s: %w", p.config.Name, err)
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, p.path, p.config.Args...)
	cmd.WaitDelay = pluginGrace
	cmd.Env = os.Environ()
	for _, v := range p.config.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	answer, complaint := capped{max: maxAnswer}, capped{max: maxComplaint}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &answer, &complaint
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("cannot ask credential provider %s: %w", p.config.Name, ctx.Err())
	case limited.Err() != nil:
		return nil, fmt.Errorf("cannot ask credential provider %s for %s: it did not answer within %s%s", p.config.Name, repository, p.timeout, complaint.said())
	case err != nil:
		return nil, fmt.Errorf("cannot ask credential provider %s for %s: %w%s", p.config.Name, repository, err, complaint.said())
	case answer.over:
		return nil, fmt.Errorf("cannot use the answer of credential provider %s: it is larger than %d bytes", p.config.Name, maxAnswer)
	}
	return p.decode(answer.text.Bytes())
}

func (p *provider) decode(text []byte) (*credentialprovider.CredentialProviderResponse, error) {
	var response credentialprovider.CredentialProviderResponse
	if err := json.Unmarshal(text, &response); err != nil {
		// The error could quote a secret.
		return nil, fmt.Errorf("cannot use the answer of credential provider %s: it is not a CredentialProviderResponse in JSON", p.config.Name)
	}
	if response.APIVersion != p.config.APIVersion || response.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("cannot use the answer of credential provider %s: it must be a CredentialProviderResponse of %s, and it is a %q of %q",
			p.config.Name, p.config.APIVersion, response.Kind, response.APIVersion)
	}
	return &response, nil
}

// capped keeps the beginning of what is written to it.
type capped struct {
	text bytes.Buffer
	max  int
	over bool
}

// Write takes everything, so that the writer is not ended by a closed pipe.
func (c *capped) Write(b []byte) (int, error) {
	if room := c.max - c.text.Len(); room < len(b) {
		c.over = true
		c.text.Write(b[:max(room, 0)])
		return len(b), nil
	}
	return c.text.Write(b)
}

// said is what a program wrote, to be put after an error.
func (c *capped) said() string {
	if text := strings.TrimSpace(c.text.String()); text != "" {
		return ": " + text
	}
	return ""
}
