package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"nodelet.dev/nodelet/internal/agent"
)

// client speaks to the agent's socket.
type client struct {
	socket string
	http   *http.Client
}

// answerTimeout is how long the agent may take to begin an answer. What follows
// may take for ever: a watch does.
const answerTimeout = 30 * time.Second

func newClient(runDir string) *client {
	socket := filepath.Join(runDir, agent.SocketName)
	return &client{socket: socket, http: &http.Client{
		Transport: &http.Transport{
			ResponseHeaderTimeout: answerTimeout,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", socket)
			},
		},
	}}
}

// open asks for a path and returns the body of a good answer. The caller closes
// it.
func (c *client) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nodelet"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return nil, errors.Join(fmt.Errorf("cannot get %s: the agent answered %s: %s", path, resp.Status, strings.TrimSpace(string(body))), resp.Body.Close())
	}
	return resp.Body, nil
}

// get asks for a path and decodes the answer.
func (c *client) get(ctx context.Context, path string, into any) error {
	body, err := c.open(ctx, path)
	if err != nil {
		return err
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return errors.Join(fmt.Errorf("cannot read the answer of the agent to %s: %w", path, err), body.Close())
	}
	return body.Close()
}

// unreachable says what to do about an agent that does not answer.
func (c *client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot open %s: permission denied; run with sudo or join group %s", c.socket, agent.SocketGroup)
	case errors.Is(err, fs.ErrNotExist):
		return &exitError{exitUnavailable, fmt.Errorf("nodelet is not running: no socket at %s; start it: systemctl start nodelet, or nodelet run", c.socket)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &exitError{exitUnavailable, fmt.Errorf("nodelet is not running: nobody answers at %s; start it: systemctl start nodelet, or nodelet run; its last words: journalctl -u nodelet -n 20", c.socket)}
	case errors.Is(err, context.Canceled):
		return err
	}
	return &exitError{exitUnavailable, fmt.Errorf("cannot ask the agent at %s: %w", c.socket, err)}
}
