package fakecri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	bufconnSize = 1 << 20
	// messageSize is what CRI clients and containerd use.
	messageSize = 16 << 20
	// greetingTimeout is how long a new connection may be silent.
	greetingTimeout = 5 * time.Second
)

// Server is a CRI runtime in memory. Its methods may be called from any goroutine.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	options Options
	closed  chan struct{}
	tasks   sync.WaitGroup // containers' programs, servers' accept loops

	mu         sync.Mutex // guards everything below and is never held while anything blocks
	shut       bool
	sandboxes  map[string]*sandbox
	containers map[string]*container
	names      map[string]string
	images     map[string]*image
	faults     []*Fault
	journal    journal
	events     eventQueue
	ids        int
	addresses  int
	lastTime   int64
	ready      readiness
	endpoints  []*endpoint
	memory     *endpoint // the one that Bufconn uses, nil before its first call
}

// endpoint is one place where clients connect; it comes back after a crash.
type endpoint struct {
	listen func() (net.Listener, error)
	// memory is the listener of an endpoint without a socket.
	memory *bufconn.Listener
	server *grpc.Server // nil while crashed
}

// New returns a server that clients cannot reach yet: see Listen, Bufconn and Register.
func New(o Options) *Server {
	if o.Flavor == "" {
		o.Flavor = Containerd24
	}
	if o.AddressPrefix == "" {
		o.AddressPrefix = "10.88"
	}
	o.Programs, o.Latency = maps.Clone(o.Programs), maps.Clone(o.Latency)
	s := &Server{
		options:    o,
		closed:     make(chan struct{}),
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
		names:      map[string]string{},
		images:     map[string]*image{},
		journal:    newJournal(),
		ready:      readiness{runtime: true, network: true},
	}
	for _, i := range o.Images {
		s.SetImage(i)
	}
	return s
}

// Register adds both services to a gRPC server of the caller's. Crash does not reach its connections.
func (s *Server) Register(server grpc.ServiceRegistrar) {
	server.RegisterService(s.instrument(&runtimeapi.RuntimeService_ServiceDesc), s)
	server.RegisterService(s.instrument(&runtimeapi.ImageService_ServiceDesc), s)
}

// Listen serves on a unix socket. A socket file of an earlier process is replaced.
func (s *Server) Listen(path string) error {
	return s.add(&endpoint{listen: func() (net.Listener, error) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot replace the socket %s: %w", path, err)
		}
		listener, err := new(net.ListenConfig).Listen(lifetime{s.closed}, "unix", path)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
		}
		return listener, nil
	}})
}

// Bufconn returns a dialer for grpc.WithContextDialer that connects in memory. While the server is crashed it fails.
func (s *Server) Bufconn() func(context.Context, string) (net.Conn, error) {
	s.mu.Lock()
	e := s.memory
	if e == nil {
		e = &endpoint{}
		e.listen = func() (net.Listener, error) { return bufconn.Listen(bufconnSize), nil }
		s.memory = e
	}
	fresh := !slices.Contains(s.endpoints, e)
	s.mu.Unlock()
	if fresh {
		// It cannot fail: no socket is involved, and a closed server refuses to connect below.
		_ = s.add(e)
	}
	return func(ctx context.Context, _ string) (net.Conn, error) {
		s.mu.Lock()
		listener := e.memory
		s.mu.Unlock()
		if listener == nil {
			return nil, errors.New("cannot connect: the fake runtime is down")
		}
		return listener.DialContext(ctx)
	}
}

// Dial connects in memory. The connection is the caller's to close.
func (s *Server) Dial() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///fakecri", grpc.WithContextDialer(s.Bufconn()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageSize)))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the fake runtime: %w", err)
	}
	return conn, nil
}

func (s *Server) add(e *endpoint) error {
	if err := s.open(e); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = append(s.endpoints, e)
	return nil
}

func (s *Server) open(e *endpoint) error {
	listener, err := e.listen()
	if err != nil {
		return err
	}
	// A client that was killed while it connected may leave a connection that
	// somebody else holds open; Stop waits for its greeting.
	server := grpc.NewServer(grpc.MaxRecvMsgSize(messageSize), grpc.MaxSendMsgSize(messageSize), grpc.ConnectionTimeout(greetingTimeout))
	s.Register(server)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return errors.Join(errors.New("cannot serve: the fake runtime is closed"), listener.Close())
	}
	e.server = server
	if memory, ok := listener.(*bufconn.Listener); ok {
		e.memory = memory
	}
	s.tasks.Go(func() {
		// It ends when the server is stopped, which is no error worth telling.
		_ = server.Serve(listener)
	})
	return nil
}

// Crash drops every connection, as when the runtime's daemon is killed. Containers go on running and state is kept.
func (s *Server) Crash() {
	s.mu.Lock()
	var servers []*grpc.Server
	for _, e := range s.endpoints {
		if e.server != nil {
			servers = append(servers, e.server)
		}
		e.server, e.memory = nil, nil
	}
	s.mu.Unlock()
	for _, server := range servers {
		server.Stop()
	}
}

// Resume serves again after Crash or Reboot.
func (s *Server) Resume() error {
	s.mu.Lock()
	var down []*endpoint
	for _, e := range s.endpoints {
		if e.server == nil {
			down = append(down, e)
		}
	}
	s.mu.Unlock()
	for _, e := range down {
		if err := s.open(e); err != nil {
			return err
		}
	}
	return nil
}

// Reboot is a crash of the whole machine: connections drop, every process is gone, and nobody is told by an event. The
// runtime's records stay, with running containers as exited (255, Unknown) and sandboxes as not ready. Call Resume next.
func (s *Server) Reboot() {
	s.Crash()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			s.endLocked(c, 255, "Unknown")
		}
		c.files = newFileSystem()
	}
	for _, b := range s.sandboxes {
		b.ready, b.ip = false, ""
	}
	s.events = eventQueue{}
}

// Wipe ends and forgets every sandbox, container and present image, as when the runtime's root directory is lost.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			s.endLocked(c, 255, "Unknown")
		}
	}
	clear(s.sandboxes)
	clear(s.containers)
	clear(s.names)
	for _, i := range s.images {
		i.present = false
	}
}

// Close ends the server and every program, and returns when no goroutine of the server is left.
func (s *Server) Close() {
	s.mu.Lock()
	if s.shut {
		s.mu.Unlock()
		return
	}
	s.shut = true
	close(s.closed)
	s.mu.Unlock()
	// Clients go first: one that lives would start again what ends.
	s.Crash()
	s.mu.Lock()
	for _, c := range s.containers {
		if c.process != nil {
			c.process.kill()
		}
	}
	s.mu.Unlock()
	s.tasks.Wait()
}

// lifetime is a context that ends when the server is closed: programs and late effects belong to the server, not to
// the call that caused them.
type lifetime struct{ closed <-chan struct{} }

func (lifetime) Deadline() (time.Time, bool) { return time.Time{}, false }
func (l lifetime) Done() <-chan struct{}     { return l.closed }
func (lifetime) Value(any) any               { return nil }

// Err implements [context.Context].
func (l lifetime) Err() error {
	select {
	case <-l.closed:
		return context.Canceled
	default:
		return nil
	}
}
