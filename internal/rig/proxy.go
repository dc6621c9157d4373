package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Stage is where a call is on its way through a proxy.
type Stage string

// The stages of a call.
const (
	// Before the call reaches the runtime: with an error it never does.
	Before Stage = "before"
	// After the runtime has answered: with an error the answer is lost.
	After Stage = "after"
)

// Proxy stands between a client and a runtime, and passes every gRPC call on
// without understanding it.
type Proxy struct {
	server *grpc.Server
	target *grpc.ClientConn
	socket string

	mu   sync.Mutex // guards hook
	hook func(method string, stage Stage) error
}

// NewProxy listens on a unix socket and passes calls to another one.
func NewProxy(ctx context.Context, socket, target string) (*Proxy, error) {
	conn, err := grpc.NewClient("unix://"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(messageSize)))
	if err != nil {
		return nil, fmt.Errorf("cannot reach %s: %w", target, err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot listen on %s: %w", socket, err), conn.Close())
	}
	p := &Proxy{target: conn, socket: socket}
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(p.handle), grpc.MaxRecvMsgSize(messageSize))
	go func() {
		// The end of Serve is the end of the proxy; calls in flight get their errors.
		_ = p.server.Serve(l)
	}()
	return p, nil
}

// Endpoint is the socket as CRI clients want it.
func (p *Proxy) Endpoint() string { return "unix://" + p.socket }

// Hook is called at each stage of each unary call with the method's short name,
// such as CreateContainer. An error fails the call. Nil removes the hook.
func (p *Proxy) Hook(hook func(method string, stage Stage) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// Close ends the proxy and all calls.
func (p *Proxy) Close() error {
	p.server.Stop()
	err := p.target.Close()
	if rm := os.Remove(p.socket); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

func (p *Proxy) at(method string, stage Stage) error {
	p.mu.Lock()
	hook := p.hook
	p.mu.Unlock()
	if hook == nil {
		return nil
	}
	if err := hook(method[strings.LastIndexByte(method, '/')+1:], stage); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// handle passes one call on: the messages of the client one way, those of the
// runtime the other.
func (p *Proxy) handle(_ any, client grpc.ServerStream) error {
	ctx := client.Context()
	method, ok := grpc.Method(ctx)
	if !ok {
		return status.Error(codes.Internal, "the call has no method")
	}
	request := &frame{}
	if err := client.RecvMsg(request); err != nil {
		return err
	}
	if err := p.at(method, Before); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(forwarded(ctx))
	defer cancel()
	stream, err := p.target.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(request), stream.CloseSend()); err != nil {
		return err
	}
	for first := true; ; first = false {
		reply := &frame{}
		if err := stream.RecvMsg(reply); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if first {
			if err := p.at(method, After); err != nil {
				return err
			}
		}
		if err := client.SendMsg(reply); err != nil {
			return err
		}
	}
}

// frame is a message that nobody looks into.
type frame struct{ data mem.BufferSlice }

// raw is the codec of frames.
type raw struct{}

var _ encoding.CodecV2 = raw{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("cannot pass on a %T", v)
	}
	return f.data, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("cannot pass on a %T", v)
	}
	data.Ref() // the library frees it after this call
	f.data = data
	return nil
}

// forwarded carries the client's headers over to the runtime: containerd reads
// its namespace from them.
func forwarded(ctx context.Context) context.Context {
	headers, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx
	}
	out := metadata.MD{}
	for key, values := range headers {
		if strings.HasPrefix(key, "containerd-") {
			out[key] = values
		}
	}
	return metadata.NewOutgoingContext(ctx, out)
}
