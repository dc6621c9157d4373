package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
)

// ask is a program of the scripts: it prints the answer to a GET and ends with 1
// when that is not 200. curl may be missing.
func ask() {
	if err := askFor(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func askFor(ctx context.Context, where, path string) error {
	client := newClient(where).http
	if strings.Contains(where, ":") {
		client = http.DefaultClient
	} else {
		where = "nodelet"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+where+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return errors.Join(err, resp.Body.Close())
}

// heldKey names the listener of an address that is in use.
type heldKey struct{}

// reserve sets a variable to a loopback address.
func reserve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: address VARIABLE [held]")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	if len(args) < 2 {
		ts.Check(l.Close())
		return
	}
	held, ok := ts.Value(heldKey{}).(*net.Listener)
	if !ok {
		ts.Fatalf("no place for a listener")
	}
	*held = l
}

// release gives the address up that is in use.
func release(ts *testscript.TestScript, neg bool, args []string) {
	held, ok := ts.Value(heldKey{}).(*net.Listener)
	if neg || len(args) > 0 || !ok || *held == nil {
		ts.Fatalf("usage: release, after address VARIABLE held")
	}
	ts.Check((*held).Close())
}

// traces is an OTLP collector that writes each span as a line.
type traces struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex // guards lines
	lines []string
}

// tracesKey names it.
type tracesKey struct{}

func (c *traces) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				line := []string{span.GetName(), fmt.Sprintf("root=%t", len(span.GetParentSpanId()) == 0)}
				for _, a := range slices.Concat(span.GetAttributes(), resource.GetResource().GetAttributes()) {
					line = append(line, a.GetKey()+"="+valueText(a.GetValue()))
				}
				c.lines = append(c.lines, strings.Join(line, " "))
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func valueText(v *common.AnyValue) string {
	if list := v.GetArrayValue(); list != nil {
		var out []string
		for _, item := range list.GetValues() {
			out = append(out, item.GetStringValue())
		}
		return strings.Join(out, ",")
	}
	return v.GetStringValue()
}

func startCollector(ts *testscript.TestScript, neg bool, args []string) {
	c, ok := ts.Value(tracesKey{}).(*traces)
	if neg || len(args) > 0 || !ok {
		ts.Fatalf("usage: collector")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, c)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	ts.Defer(func() {
		s.Stop()
		ts.Check(<-ended)
	})
	ts.Setenv("OTLP", l.Addr().String())
}

func awaitSpan(ts *testscript.TestScript, neg bool, args []string) {
	c, ok := ts.Value(tracesKey{}).(*traces)
	if neg || len(args) != 1 || !ok {
		ts.Fatalf("usage: spans REGEXP")
	}
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		c.mu.Lock()
		found, all := slices.ContainsFunc(c.lines, want.MatchString), strings.Join(c.lines, "\n")
		c.mu.Unlock()
		if found {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no span %q among\n%s", args[0], all)
		}
	}
}
