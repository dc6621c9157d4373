package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// listenAgain is how long to wait before an address that could not be had is
// tried again.
const listenAgain = 5 * time.Second

// ServeMetrics answers /metrics and /healthz, and nothing else, on a TCP address
// until ctx ends. While the address cannot be had, it tries again and again: pods
// do not wait for those who watch them. tell hears why when that begins, and nil
// when the address is there after all.
func ServeMetrics(ctx context.Context, address string, a Agent, tell func(error)) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.Metrics())
	mux.HandleFunc("GET /healthz", live(a))
	l, err := listenTCP(ctx, address)
	if err != nil {
		tell(fmt.Errorf("cannot serve the metrics on %s (metricsBindAddress): %w; it is tried again every %s", address, err, listenAgain))
		if l = keepListening(ctx, address); l == nil {
			return nil
		}
		tell(nil)
	}
	return serve(ctx, l, mux)
}

// keepListening returns nil when ctx ended first.
func keepListening(ctx context.Context, address string) net.Listener {
	tick := time.NewTicker(listenAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if l, err := listenTCP(ctx, address); err == nil {
			return l
		}
	}
}

func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", address)
}
