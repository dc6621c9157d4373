package server

import (
	"net/http"
	"net/http/pprof"
)

// debugHandlers serves what is allowed below /debug, and says of the rest how to
// allow it.
func debugHandlers(mux *http.ServeMux, d Debug) {
	if d.Profiling {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	} else {
		mux.HandleFunc("/debug/pprof/", off("profiles", "enableProfilingHandler"))
	}
	if d.State == nil {
		mux.HandleFunc("/debug/state", off("the state", "enableStateDump"))
		return
	}
	mux.HandleFunc("GET /debug/state", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, d.State(r.Context())) })
}

// off answers for what is not served.
func off(what, field string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "cannot show "+what+": set "+field+": true in the configuration and restart nodelet", http.StatusNotFound)
	}
}
