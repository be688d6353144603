package server

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// metric is one line of mntr. The names are ZooKeeper's; one that has no counterpart here is left
// out, for a number that is always zero would look like a measurement.
type metric struct {
	name  string // without zk_
	help  string
	value any // int, int64, or string for what has a form of its own
}

func (s *Server) metrics(o overview) []metric {
	ms := append(s.clientMetrics(o), s.hostMetrics()...)
	peers := s.replica.PeerStats()
	ms = append(ms, metric{"log_descriptor_waits", "writes of the log that had to wait for a file descriptor",
		peers.DescriptorWaits})
	if s.cfg.Standalone() {
		return ms
	}
	ms = append(ms,
		metric{"peer_connections", "connections that are open at the peer port", peers.Connections},
		metric{"peer_connections_closed", "connections at the peer port that were too many (maxPeerCnxns)", peers.Crowded},
		metric{"peer_strangers_rejected", "connections at the peer port from no member, or with what no member sends",
			peers.Rejected},
		metric{"peer_requests_refused", "frames and records from the peer port that no member sends", peers.Refused},
		metric{"peer_connections_unproved", "open connections at the peer port that have not said, or not proved, who they are",
			peers.Auth.Unproved},
		metric{"peer_proofs_refused", "connections at the peer port without a proof that was due, or with a wrong one, or certificate",
			peers.Auth.Refused},
		metric{"peer_proofs_late", "connections at the peer port that did not say and prove in time who they are", peers.Auth.Late},
		metric{"peer_frame_bytes", "bytes of large frames that are arriving at the peer port (peerFrameMaxBytes)",
			peers.FrameBytes},
		metric{"peer_version", "newest version of the protocol between members that this member speaks", peers.Version},
		metric{"peer_versions_refused", "connections between members that have no version of the protocol in common",
			peers.VersionsRefused})
	ms = append(ms, s.peerAuth.metrics()...)
	if s.mode(o) == readOnlyMode {
		return ms
	}
	ms = append(ms, metric{"quorum_size", "voters", o.status.Voters})
	if s.mode(o) == "leader" {
		ms = append(ms,
			metric{"synced_followers", "followers that have everything that is committed", o.status.SyncedFollowers},
			metric{"synced_observers", "observers that have everything that is committed", o.status.SyncedObservers},
			metric{"learners", "followers and observers that follow", o.status.SyncedFollowers + o.status.SyncedObservers},
			metric{"peer_version_common", "newest version of the protocol that all members speak; 0 if there is none, " +
				"or a member has not been reached yet", s.replica.CommonVersion()},
			metric{"pending_syncs", "always 0: a sync is an entry of the log like any update", 0})
	}
	return ms
}

// clientMetrics are about the clients of this member, and the state that it serves them.
func (s *Server) clientMetrics(o overview) []metric {
	l, refused := o.work.Latency, s.counters.refusedHandshakes.Load()
	return []metric{
		{"num_alive_connections", "client connections, four-letter words included", o.connections},
		{"outstanding_requests", "requests received and not answered yet", o.work.Outstanding},
		{"avg_latency", "ms from the last byte of a request to its reply", javaDouble(l.AvgMs())},
		{"min_latency", "ms, as avg_latency", l.MinMs},
		{"max_latency", "ms, as avg_latency", l.MaxMs},
		{"packets_received", "requests, handshakes and four-letter words", o.received},
		{"packets_sent", "replies, notifications and answers", o.sent},
		{"bytes_received_count", "bytes of complete requests", s.counters.bytesReceived.Load()},
		{"znode_count", "nodes, the root counted twice as in ZooKeeper", o.counts.Nodes},
		{"ephemerals_count", "ephemeral nodes", o.counts.Ephemerals},
		{"approximate_data_size", "bytes of paths and data", o.counts.DataSizeBytes},
		{"watch_count", "watches of this member's connections", o.work.Watches.Watches},
		{"global_sessions", "sessions of the whole cluster", o.counts.Sessions},
		{"local_sessions", "sessions of read-only mode", s.sessions.LocalSessions()},
		{"connection_request_count", "connect requests, whatever became of them", s.counters.connectRequests.Load()},
		{"cnxn_closed_without_zk_server_running", "handshakes refused: no leader, or the client has seen later state",
			refused},
		{"unsuccessful_handshake", "first frames that were no handshake", s.counters.badHandshakes.Load()},
		{"connection_rejected", "connections beyond maxClientCnxns or maxCnxns, handshakes beyond connection_throttle_tokens",
			s.port.rejected.Load()},
		{"sessionless_connections_expired", "connections whose first request took too long",
			s.counters.sessionlessExpired.Load()},
		{"sessionless_connections", "connections whose first request is not complete, at most maxSessionlessCnxns",
			s.port.silentCount()},
		{"sessionless_connections_displaced", "the oldest of these, closed for a newer connection", s.port.displaced.Load()},
		{"large_requests_rejected", "requests beyond largeRequestMaxBytes, frames of a length that is negative or too large",
			o.work.TooLarge + s.counters.badLengths.Load()},
		{"throttled_ops", "requests that waited longer than throttled_op_wait_time", o.work.Throttled},
		{"client_memory_bytes", "bytes of unsent output, and of requests that arrive or wait, at most maxClientMemory", o.work.Held},
		{"connections_ended_for_memory", "connections closed because they, or all of them, held too much",
			o.work.EndedForMemory},
		{"watch_memory_bytes", "memory of the watches, at most maxWatchMemory", o.work.WatchBytes},
		{"watches_refused", "watches beyond maxWatchMemory", o.work.WatchesRefused},
		{"long_answers_refused", "requests whose answer is beyond maxResponseBytes or the limits of multiRead",
			o.work.TooLong},
		{"identities_refused", "logins beyond maxIdentities or maxIdentityBytes", o.work.IdentitiesRefused},
		{"logins_refused", "logins by a scheme that is not there, or without the proof that it wants", o.work.LoginsRefused},
		{"ensemble_auth_fail", "connections closed because their clients expected another ensemble (ensembleAuthName)",
			o.work.OtherEnsemble},
		{"undeliverable_requests", "requests that could not be delivered to the leader; their connections were closed",
			o.work.Undeliverable},
		{"acls_refused", "requests beyond maxACLEntries or maxACLBytes", o.work.ACLsRefused},
		{"costly_requests_refused", "requests beyond maxRequestCost", o.work.CostlyRefused},
		{"ephemerals_refused", "requests beyond maxSessionEphemerals", o.work.EphemeralsRefused},
		{"data_memory_bytes", "memory of the nodes, at most maxDataBytes", o.work.StateBytes},
		{"state_full_refused", "requests beyond maxNodes or maxDataBytes", o.work.StateFull},
		{"sessions_refused", "handshakes beyond maxSessions or maxSessionsPerAddress", o.work.SessionsRefused},
		{"lock_strangers", "nodes of locks on a path with locks of another library, one of which may not wait for the other",
			o.work.ForeignLocks},
		{"uptime", "ms since the start", time.Since(s.started).Milliseconds()},
	}
}

// hostMetrics are about what this member has of its machine: descriptors, HTTP port, disk.
func (s *Server) hostMetrics() (ms []metric) {
	open, limit := fileDescriptors()
	if open >= 0 {
		ms = append(ms, metric{"open_file_descriptor_count", "files and sockets open", open})
	}
	if limit >= 0 {
		ms = append(ms, metric{"max_file_descriptor_count", "files and sockets allowed", limit})
	}
	if s.http != nil {
		slots := s.http.slots
		ms = append(ms,
			metric{"http_connections_refused", "beyond admin.maxCnxns or admin.maxCnxnsPerAddress, all others being served",
				slots.refused.Load()},
			metric{"http_connections_displaced", "closed in favour of a newer one: idle, or with an incomplete request",
				slots.displaced.Load()},
			metric{"http_requests_late", "requests that did not come within admin.requestTimeout", slots.late.Load()})
	}
	if s.tls != nil {
		ms = append(ms, s.tls.metrics()...)
	}
	if s.audit != nil {
		lines := s.audit.Stats()
		ms = append(ms, metric{"audit_lines", "lines of the audit log", lines.Lines},
			metric{"audit_lines_lost", "lines of the audit log that found no room in audit.queueBytes", lines.Lost})
	}
	if s.dirs != nil {
		ms = append(ms, metric{"disk_full_stops", "how often this member had to wait for space for its log",
			s.cfg.DiskFullStops})
		if free, ok := freeBytes(s.cfg.DataLogDir); ok {
			ms = append(ms, metric{"disk_free_bytes", "that are free where the log is", free})
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
	for _, m := range s.metrics(o) {
		fmt.Fprintf(&b, "zk_%s\t%v\n", m.name, m.value)
	}
	return b.String()
}

// peerStates are the roles as mntr has them in a cluster. A member that serves is past election,
// discovery and synchronization.
var peerStates = map[string]string{
	"leader": "leading - broadcast", "follower": "following - broadcast", "observer": "observing - broadcast",
}
