package server

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"lockkeeper/server/metrics"
)

// metrics is what this member measures, for mntr and the ports with metrics. What does not exist in
// its role or with its configuration is left out, for a number that is always zero would look like
// a measurement.
func (s *Server) metrics(o overview) metrics.List {
	ms := append(s.clientMetrics(o), s.hostMetrics()...)
	peers := s.replica.PeerStats()
	ms = append(ms, metrics.Counter("log_descriptor_waits", "writes of the log that had to wait for a file descriptor",
		peers.DescriptorWaits))
	if s.cfg.Standalone() {
		return ms
	}
	ms = append(ms,
		metrics.Gauge("peer_connections", "connections that are open at the peer port", peers.Connections),
		metrics.Counter("peer_connections_closed", "connections at the peer port that were too many (maxPeerCnxns)", peers.Crowded),
		metrics.Counter("peer_strangers_rejected", "connections at the peer port from no member, or with what no member sends",
			peers.Rejected),
		metrics.Counter("peer_requests_refused", "frames and records from the peer port that no member sends", peers.Refused),
		metrics.Gauge("peer_connections_unproved", "open connections at the peer port that have not said, or not proved, who they are",
			peers.Auth.Unproved),
		metrics.Counter("peer_proofs_refused", "connections at the peer port without a proof that was due, or with a wrong one, or certificate",
			peers.Auth.Refused),
		metrics.Counter("peer_proofs_late", "connections at the peer port that did not say and prove in time who they are", peers.Auth.Late),
		metrics.Gauge("peer_frame_bytes", "bytes of large frames that are arriving at the peer port (peerFrameMaxBytes)",
			peers.FrameBytes),
		metrics.Gauge("peer_version", "newest version of the protocol between members that this member speaks", peers.Version),
		metrics.Counter("peer_versions_refused", "connections between members that have no version of the protocol in common",
			peers.VersionsRefused))
	ms = append(ms, s.peerAuth.metrics()...)
	if s.mode(o) == readOnlyMode {
		return ms
	}
	ms = append(ms, metrics.Gauge("quorum_size", "voters", o.status.Voters))
	if s.mode(o) == "leader" {
		ms = append(ms,
			metrics.Gauge("synced_followers", "followers that have everything that is committed", o.status.SyncedFollowers),
			metrics.Gauge("synced_observers", "observers that have everything that is committed", o.status.SyncedObservers),
			metrics.Gauge("learners", "followers and observers that follow", o.status.SyncedFollowers+o.status.SyncedObservers),
			metrics.Gauge("peer_version_common", "newest version of the protocol that all members speak; 0 if there is none, "+
				"or a member has not been reached yet", s.replica.CommonVersion()),
			metrics.Gauge("pending_syncs", "always 0: a sync is an entry of the log like any update", 0))
	}
	return ms
}

// clientMetrics are about the clients of this member, and the state that it serves them.
func (s *Server) clientMetrics(o overview) metrics.List {
	l, refused := o.work.Latency, s.counters.refusedHandshakes.Load()
	return metrics.List{
		metrics.Gauge("num_alive_connections", "client connections, four-letter words included", o.connections),
		metrics.Gauge("outstanding_requests", "requests received and not answered yet", o.work.Outstanding),
		metrics.Gauge("avg_latency", "ms from the last byte of a request to its reply", l.AvgMs()),
		metrics.Gauge("min_latency", "ms, as avg_latency", l.MinMs),
		metrics.Gauge("max_latency", "ms, as avg_latency", l.MaxMs),
		metrics.Gauge("packets_received", "requests, handshakes and four-letter words", o.received),
		metrics.Gauge("packets_sent", "replies, notifications and answers", o.sent),
		metrics.Counter("bytes_received_count", "bytes of complete requests", s.counters.bytesReceived.Load()),
		metrics.Gauge("znode_count", "nodes, the root counted twice as in ZooKeeper", o.counts.Nodes),
		metrics.Gauge("ephemerals_count", "ephemeral nodes", o.counts.Ephemerals),
		metrics.Gauge("approximate_data_size", "bytes of paths and data", o.counts.DataSizeBytes),
		metrics.Gauge("watch_count", "watches of this member's connections", o.work.Watches.Watches),
		metrics.Gauge("global_sessions", "sessions of the whole cluster", o.counts.Sessions),
		metrics.Gauge("local_sessions", "sessions of read-only mode", s.sessions.LocalSessions()),
		metrics.Counter("connection_request_count", "connect requests, whatever became of them", s.counters.connectRequests.Load()),
		metrics.Counter("cnxn_closed_without_zk_server_running", "handshakes refused: no leader, or the client has seen later state",
			refused),
		metrics.Counter("unsuccessful_handshake", "first frames that were no handshake", s.counters.badHandshakes.Load()),
		metrics.Counter("connection_rejected", "connections beyond maxClientCnxns or maxCnxns, handshakes beyond connection_throttle_tokens",
			s.port.rejected.Load()),
		metrics.Counter("sessionless_connections_expired", "connections whose first request took too long",
			s.counters.sessionlessExpired.Load()),
		metrics.Gauge("sessionless_connections", "connections whose first request is not complete, at most maxSessionlessCnxns",
			s.port.silentCount()),
		metrics.Counter("sessionless_connections_displaced", "the oldest of these, closed for a newer connection", s.port.displaced.Load()),
		metrics.Counter("large_requests_rejected", "requests beyond largeRequestMaxBytes, frames of a length that is negative or too large",
			o.work.TooLarge+s.counters.badLengths.Load()),
		metrics.Counter("throttled_ops", "requests that waited longer than throttled_op_wait_time", o.work.Throttled),
		metrics.Gauge("client_memory_bytes", "bytes of unsent output, and of requests that arrive or wait, at most maxClientMemory", o.work.Held),
		metrics.Counter("connections_ended_for_memory", "connections closed because they, or all of them, held too much",
			o.work.EndedForMemory),
		metrics.Gauge("watch_memory_bytes", "memory of the watches, at most maxWatchMemory", o.work.WatchBytes),
		metrics.Counter("watches_refused", "watches beyond maxWatchMemory", o.work.WatchesRefused),
		metrics.Counter("long_answers_refused", "requests whose answer is beyond maxResponseBytes or the limits of multiRead",
			o.work.TooLong),
		metrics.Counter("identities_refused", "logins beyond maxIdentities or maxIdentityBytes", o.work.IdentitiesRefused),
		metrics.Counter("logins_refused", "logins by a scheme that is not there, or without the proof that it wants", o.work.LoginsRefused),
		metrics.Counter("ensemble_auth_fail", "connections closed because their clients expected another ensemble (ensembleAuthName)",
			o.work.OtherEnsemble),
		metrics.Counter("undeliverable_requests", "requests that could not be delivered to the leader; their connections were closed",
			o.work.Undeliverable),
		metrics.Counter("acls_refused", "requests beyond maxACLEntries or maxACLBytes", o.work.ACLsRefused),
		metrics.Counter("costly_requests_refused", "requests beyond maxRequestCost", o.work.CostlyRefused),
		metrics.Counter("ephemerals_refused", "requests beyond maxSessionEphemerals", o.work.EphemeralsRefused),
		metrics.Gauge("data_memory_bytes", "memory of the nodes, at most maxDataBytes", o.work.StateBytes),
		metrics.Counter("state_full_refused", "requests beyond maxNodes or maxDataBytes", o.work.StateFull),
		metrics.Counter("sessions_refused", "handshakes beyond maxSessions or maxSessionsPerAddress", o.work.SessionsRefused),
		metrics.Counter("lock_strangers", "nodes of locks on a path with locks of another library, one of which may not wait for the other",
			o.work.ForeignLocks),
		metrics.Gauge("uptime", "ms since the start", time.Since(s.started).Milliseconds()),
	}
}

// hostMetrics are about what this member has of its machine: descriptors, HTTP port, disk.
func (s *Server) hostMetrics() (ms metrics.List) {
	open, limit := fileDescriptors()
	if open >= 0 {
		ms = append(ms, metrics.Gauge("open_file_descriptor_count", "files and sockets open", open))
	}
	if limit >= 0 {
		ms = append(ms, metrics.Gauge("max_file_descriptor_count", "files and sockets allowed", limit))
	}
	if s.http != nil {
		slots := s.http.slots
		ms = append(ms,
			metrics.Counter("http_connections_refused", "beyond admin.maxCnxns or admin.maxCnxnsPerAddress, all others being served",
				slots.refused.Load()),
			metrics.Counter("http_connections_displaced", "closed in favour of a newer one: idle, or with an incomplete request",
				slots.displaced.Load()),
			metrics.Counter("http_requests_late", "requests that did not come within admin.requestTimeout", slots.late.Load()))
	}
	if s.tls != nil {
		ms = append(ms, s.tls.metrics()...)
	}
	if s.audit != nil {
		lines := s.audit.Stats()
		ms = append(ms, metrics.Counter("audit_lines", "lines of the audit log", lines.Lines),
			metrics.Counter("audit_lines_lost", "lines of the audit log that found no room in audit.queueBytes", lines.Lost))
	}
	if s.dirs != nil {
		ms = append(ms, metrics.Counter("disk_full_stops", "how often this member had to wait for space for its log",
			s.cfg.DiskFullStops))
		if free, ok := freeBytes(s.cfg.DataLogDir); ok {
			ms = append(ms, metrics.Gauge("disk_free_bytes", "that are free where the log is", free))
		}
	}
	return ms
}

func (s *Server) mntrText(o overview) string {
	var b strings.Builder
	mode := s.mode(o)
	fmt.Fprintf(&b, "zk_version\t%s\n", s.build)
	fmt.Fprintf(&b, "zk_server_state\t%s\n", mode)
	if !s.cfg.Standalone() && mode != readOnlyMode {
		fmt.Fprintf(&b, "zk_peer_state\t%s\n", cmp.Or(peerStates[mode], "looking - election"))
		if mode == "observer" {
			fmt.Fprintf(&b, "zk_observer_master_id\t%d\n", o.status.Leader)
		}
	}
	for name, value := range s.metrics(o).Lines() {
		if f, ok := value.(float64); ok {
			value = javaDouble(f)
		}
		fmt.Fprintf(&b, "zk_%s\t%v\n", name, value)
	}
	return b.String()
}

// peerStates are the roles as mntr has them in a cluster. A member that serves is past election,
// discovery and synchronization.
var peerStates = map[string]string{
	"leader": "leading - broadcast", "follower": "following - broadcast", "observer": "observing - broadcast",
}
