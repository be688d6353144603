package server

import (
	"net/http"
	"time"

	"lockkeeper/server/httplock"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/admin"
	"lockkeeper/server/ops/console"
	"lockkeeper/server/ops/console/web"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/server/ops/words"
	"lockkeeper/server/zoocfg"
)

// surfaces show a member to people and programs: they render its ops.Member.
type surfaces struct {
	shared   *ops.Shared
	words    *words.Words // clientPort reads the words, and sends the answers
	recorder *console.Recorder
	console  *console.Console
	locks    *httplock.Locks
	// http and metrics are nil unless they are configured.
	http, metrics *door.Port
}

// newSurfaces returns the surfaces of a member, with d as the door of their HTTP requests. The
// console has a goroutine until stop.
func newSurfaces(m *member, d *door.Door) *surfaces {
	s := &surfaces{shared: ops.NewShared(m, d), recorder: console.NewRecorder(max(0, m.s.cfg.Console.HistoryBytes))}
	s.recorder.Granted = m.s.sessions.Granted
	s.words = &words.Words{Shared: s.shared}
	s.console = console.New(s.shared, m.build.Version, s.recorder, web.Handler())
	s.locks = httplock.New(httplock.Config{Settings: &m.s.cfg, Sessions: m.s.sessions, View: m.View,
		Handshake: func() bool { return m.s.port.mayConnect() }, Log: m.s.log})
	return s
}

// serve opens the HTTP port and the port for metrics, if they are configured.
func (s *surfaces) serve(ports listeners, tls *serverTLS, stopping <-chan struct{}) {
	cfg := s.shared.Config()
	if ports.http != nil {
		mux := http.NewServeMux()
		commands := admin.New(s.shared)
		s.register(mux, commands, stopping)
		s.http = s.shared.Door.Open("HTTP port", tls.httpListener(ports.http, cfg.HTTP.TLS), mux, cfg.HTTP.Login,
			commands.IsRestore)
		s.http.Start()
	}
	if ports.metrics != nil {
		mux, mode := http.NewServeMux(), zoocfg.TLSOff
		if cfg.Metrics.TLS {
			mode = zoocfg.TLSOnly
		}
		mux.Handle("GET /metrics", metrics.NewHandler(s.prometheusMetrics, !cfg.Metrics.NoProcess))
		s.metrics = s.shared.Door.Open("port for metrics", tls.httpListener(ports.metrics, mode), mux,
			cfg.Metrics.Login, nil)
		s.metrics.Start()
	}
}

// register adds the addresses of the HTTP port to a mux.
func (s *surfaces) register(mux door.Mux, commands *admin.Server, stopping <-chan struct{}) {
	ops.NewEndpoints(s.shared, stopping).Register(mux)
	commands.Register(mux)
	s.console.Register(mux)
	if !s.shared.Config().HTTP.NoLocks {
		s.locks.Register(mux)
	}
}

// prometheusMetrics are the metrics of the port for them.
func (s *surfaces) prometheusMetrics() metrics.List {
	f := s.shared.Figures()
	return append(f.Metrics(s.shared.Usage()),
		f.LabeledMetrics(console.LockMetrics(s.shared.View, time.Now()), !s.shared.Config().Metrics.NoProcess)...)
}

// stop ends the event streams and the locks, and the ports after the requests that are under way.
func (s *surfaces) stop() {
	s.console.Close()
	s.locks.Close()
	s.http.Stop()
	s.metrics.Stop()
}
