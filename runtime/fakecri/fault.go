package fakecri

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mode says where in a call a fault strikes.
type Mode int

const (
	// FailBefore answers with the error; the call has no effect.
	FailBefore Mode = iota
	// FailAfter has the call's effect, then answers with the error: the reply is lost.
	FailAfter
	// Late waits until the caller has given up and Delay has passed, then has the effect.
	Late
	// HangBefore never answers and has no effect. The call ends with its context.
	HangBefore
	// HangAfter has the effect, then never answers.
	HangAfter
	// Slow waits for Delay, then works as usual. If the caller gives up meanwhile there is no effect.
	Slow
)

// Fault makes chosen calls misbehave. All conditions must hold.
type Fault struct {
	// RPC is the call's name, such as "StartContainer"; empty for all. "Event" stands for the sending of one event:
	// FailBefore loses it.
	RPC string
	// Container is a container's name, such as "web"; UID is a pod's; Image an image's name. Empty for all.
	Container, UID, Image string
	// Match decides further, if set. It runs with the server's lock held and must not call the server.
	Match func(Call) bool
	// Nth is the first matching call that the fault strikes, counted from 1; zero means 1.
	Nth int
	// Times is how many calls it strikes; zero means one, a negative number all.
	Times int
	// Mode is FailBefore by default.
	Mode Mode
	// Err is the answer; Unavailable by default.
	Err error
	// Delay is for Late and Slow.
	Delay time.Duration

	seen, struck int
}

// Inject adds a fault. Of several that match a call the first one added strikes. The returned function removes it.
func (s *Server) Inject(f Fault) (remove func()) {
	if f.Err == nil {
		f.Err = status.Error(codes.Unavailable, "injected fault")
	}
	f.Nth, f.Times = max(f.Nth, 1), max(f.Times, -1)
	if f.Times == 0 {
		f.Times = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.Times = 0
	}
}

// ClearFaults removes every fault. Calls that hang go on hanging.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *Server) strikeLocked(call Call) *Fault {
	for _, f := range s.faults {
		if !f.matches(call) {
			continue
		}
		f.seen++
		if f.seen >= f.Nth && (f.Times < 0 || f.struck < f.Times) {
			f.struck++
			copied := *f
			return &copied
		}
	}
	return nil
}

func (f *Fault) matches(call Call) bool {
	if f.RPC == "" && call.RPC == eventCall {
		return false
	}
	accepts := func(want, got string) bool { return want == "" || want == got }
	return accepts(f.RPC, call.RPC) && accepts(f.Container, call.Container) && accepts(f.UID, call.UID) &&
		accepts(f.Image, call.Image) && (f.Match == nil || f.Match(call))
}

// instrument wraps the handlers of a service. Interceptors would be simpler, but belong to a gRPC server and would be
// lost where Register is given one by the caller.
func (s *Server) instrument(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	wrapped := *desc
	wrapped.Methods = nil
	for _, method := range desc.Methods {
		handle := method.Handler
		name := method.MethodName
		wrapped.Methods = append(wrapped.Methods, grpc.MethodDesc{
			MethodName: name,
			Handler: func(srv any, ctx context.Context, decode func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
				return handle(srv, ctx, decode, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
					inner := func(ctx context.Context, req any) (any, error) { return s.serve(ctx, name, req, next) }
					if outer != nil {
						return outer(ctx, req, info, inner)
					}
					return inner(ctx, req)
				})
			},
		})
	}
	return &wrapped
}

// serve is one unary call: journal, latency, fault, effect.
func (s *Server) serve(ctx context.Context, rpc string, req any, effect grpc.UnaryHandler) (any, error) {
	index, fault := s.begin(rpc, req)
	answer, err := s.withFault(ctx, fault, req, func(ctx context.Context, req any) (any, error) {
		if err := s.sleep(ctx, s.latency(rpc)); err != nil {
			return nil, err
		}
		return effect(ctx, req)
	})
	s.finish(index, answer, err)
	return answer, err
}

func (s *Server) latency(rpc string) time.Duration {
	if latency, found := s.options.Latency[rpc]; found {
		return latency
	}
	return s.options.Latency[""]
}

func (s *Server) withFault(ctx context.Context, f *Fault, req any, effect grpc.UnaryHandler) (any, error) {
	if f == nil {
		return effect(ctx, req)
	}
	switch f.Mode {
	case FailBefore:
		return nil, f.Err
	case FailAfter:
		if _, err := effect(ctx, req); err != nil {
			return nil, err
		}
		return nil, f.Err
	case Late:
		s.hang(ctx)
		own := lifetime{s.closed}
		if err := s.sleep(own, f.Delay); err != nil {
			return nil, err
		}
		return effect(own, req)
	case HangBefore:
		s.hang(ctx)
		return nil, contextError(ctx)
	case HangAfter:
		_, err := effect(ctx, req)
		s.hang(ctx)
		if err == nil {
			err = contextError(ctx)
		}
		return nil, err
	case Slow:
		if err := s.sleep(ctx, f.Delay); err != nil {
			return nil, err
		}
		return effect(ctx, req)
	default:
		panic("fakecri: a fault of unknown mode")
	}
}

func (s *Server) hang(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.closed:
	}
}

func (s *Server) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	case <-s.closed:
		return status.Error(codes.Unavailable, "the fake runtime is closed")
	}
}

func contextError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, "the fake runtime is closed")
}

func knownCall(name string) bool {
	if name == eventCall || name == "GetContainerEvents" {
		return true
	}
	for _, desc := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, method := range desc.Methods {
			if method.MethodName == name {
				return true
			}
		}
	}
	return false
}
