package runtime

import (
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status is what the runtime says about itself.
type Status struct {
	Name           string
	Version        string
	APIVersion     string
	RuntimeReady   bool
	RuntimeMessage string
	NetworkReady   bool
	NetworkMessage string // of one that is not ready, with the directory that was searched where it tells
	// Events is where hints come from: EventsCRI, EventsContainerd or EventsNone.
	Events string
	// SandboxImage is the image of the pause process as containerd 1.6 and 1.7
	// report it. It is empty with others: containerd 2 marks the image as pinned
	// instead.
	SandboxImage string
}

// Status asks the runtime about itself.
func (c *Client) Status(ctx context.Context) (Status, error) {
	if c.conn.Load() == nil {
		return Status{}, c.notConnected() // people see this, so it comes without more words
	}
	var version *runtimeapi.VersionResponse
	err := c.call(ctx, "Version", func(ctx context.Context, conn *connection) (err error) {
		version, err = conn.runtime.Version(ctx, "v1")
		return err
	})
	if err != nil {
		return Status{}, failed(err, "", "get the version of the container runtime")
	}
	out, err := c.conditions(ctx)
	if err != nil {
		return Status{}, err
	}
	out.Name, out.Version, out.APIVersion = version.GetRuntimeName(), version.GetRuntimeVersion(), version.GetRuntimeApiVersion()
	return out, nil
}

// conditions asks for the conditions alone.
func (c *Client) conditions(ctx context.Context) (Status, error) {
	var response *runtimeapi.StatusResponse
	err := c.call(ctx, "Status", func(ctx context.Context, conn *connection) (err error) {
		response, err = conn.runtime.Status(ctx, true)
		return err
	})
	if err != nil {
		return Status{}, failed(err, "", "get the status of the container runtime")
	}
	out := Status{SandboxImage: sandboxImage(response.GetInfo()["config"])}
	if source, ok := c.eventSource.Load().(string); ok {
		out.Events = source
	}
	for _, condition := range response.GetStatus().GetConditions() {
		message := condition.GetMessage()
		if message == "" {
			message = condition.GetReason()
		}
		switch condition.GetType() {
		case runtimeapi.RuntimeReady:
			out.RuntimeReady, out.RuntimeMessage = condition.GetStatus(), message
		case runtimeapi.NetworkReady:
			out.NetworkReady, out.NetworkMessage = condition.GetStatus(), networkProblem(message, response.GetInfo())
		}
	}
	return out, nil
}

// sandboxImage finds the image of the pause process in the verbose status.
func sandboxImage(config string) string {
	var parsed struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if err := json.Unmarshal([]byte(config), &parsed); err != nil {
		return "" // not in a form that we know
	}
	return parsed.SandboxImage
}
