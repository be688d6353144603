package server

import (
	"cmp"
	"fmt"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strings"
	"time"

	"lockkeeper/internal/histogram"
	"lockkeeper/server/datadir"
	"lockkeeper/server/ops/console"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/session"
)

// metrics is what this member measures, for mntr and the ports with metrics. What does not exist in
// its role or with its configuration is left out, for a number that is always zero would look like
// a measurement.
func (s *Server) metrics(o overview) metrics.List {
	ms := append(s.clientMetrics(o), s.hostMetrics()...)
	peers := s.replica.PeerStats()
	ms = append(ms, metrics.Counter("log_descriptor_waits", "writes of the log that had to wait for a file descriptor",
		peers.DescriptorWaits))
	ms = append(ms, s.workMetrics()...)
	ms = append(ms, s.raftMetrics(o)...)
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
		since, _ := s.replica.LeaderKnown()
		sizes := s.replica.Measures().EntryBytes.Snapshot()
		ms = append(ms,
			metrics.Gauge("leader_uptime", "ms since this member began to lead", time.Since(since).Milliseconds()),
			metrics.Gauge("last_proposal_size", "bytes of the newest entry that this member has proposed",
				s.replica.Measures().LastEntryBytes.Load()),
			metrics.Gauge("min_proposal_size", "bytes of the smallest of these entries", sizes.Min),
			metrics.Gauge("max_proposal_size", "bytes of the largest of these entries", sizes.Max),
			metrics.Gauge("synced_followers", "followers that answer and have caught up", o.status.SyncedFollowers),
			metrics.Gauge("synced_observers", "observers that answer and have caught up", o.status.SyncedObservers),
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
		metrics.Counter("connection_drop_count", "connections that their clients ended, or lost, without closing their sessions",
			s.counters.drops.Load()),
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
		metrics.Counter("attaches_refused", "handshakes with unknown session ids, beyond those that may wait for the leader's answer",
			o.work.AttachesRefused),
		metrics.Counter("quota_exceeded", "requests beyond a quota (enforceQuota)", o.work.QuotaExceeded),
		metrics.Counter("quotas_kept", "requests of others than super users to change quotas (keepQuotas)", o.work.QuotasKept),
		metrics.Counter("rate_quota_pauses", "requests after which a connection paused because of a quota (rateQuota.N)", o.work.RateQuotaPauses),
		metrics.Counter("rate_quota_refused", "sessions, logins and watches beyond a quota (rateQuota.N)", o.work.RateQuotaRefused),
		metrics.Counter("super_logins_refused", "logins under the name of a super user without the password", o.work.SuperLoginsRefused),
		metrics.Counter("attaches_wrong_password", "handshakes with the id of a session and a wrong password", o.work.WrongPasswords),
		metrics.Counter("log_lines_suppressed", "lines of the log beyond 60 a minute with one message", s.lines.Suppressed()),
		metrics.Counter("lock_strangers", "nodes of locks on a path with locks of another library, one of which may not wait for the other",
			s.counters.lockStrangers.Load()),
		metrics.Gauge("uptime", "ms since the start", time.Since(s.started).Milliseconds()),
	}
}

// The help lines of the metrics that ZooKeeper has of its JVM.
const (
	usedHelp = "bytes: area heap is what Go's heap holds, nonheap the rest of what the Go runtime has from the system"
	maxHelp  = "bytes: area heap is the limit that the garbage collector keeps to (maxMemory, GOMEMLIMIT); nonheap has none, -1"
)

// hostMetrics are about what this member has of its machine: descriptors, HTTP port, disk.
func (s *Server) hostMetrics() (ms metrics.List) {
	open, limit := fileDescriptors()
	if open >= 0 {
		ms = append(ms, metrics.Gauge("open_file_descriptor_count", "files and sockets open", open))
	}
	if limit >= 0 {
		ms = append(ms, metrics.Gauge("max_file_descriptor_count", "files and sockets allowed", limit))
	}
	if s.http != nil || s.metricsPort != nil {
		var refused, displaced, late int64
		for _, p := range []*httpPort{s.http, s.metricsPort} {
			if p != nil {
				refused += p.slots.refused.Load()
				displaced += p.slots.displaced.Load()
				late += p.slots.late.Load()
			}
		}
		ms = append(ms,
			metrics.Counter("http_connections_refused", "beyond admin.maxCnxns or admin.maxCnxnsPerAddress, all others being served",
				refused),
			metrics.Counter("http_connections_displaced", "closed in favour of a newer one: idle, or with an incomplete request",
				displaced),
			metrics.Counter("http_requests_late", "requests that did not come within admin.requestTimeout", late),
			metrics.Counter("http_hosts_refused", "requests whose Host is no name of this member", s.door.hosts.Load()),
			metrics.Counter("http_pages_refused", "requests that a browser sent for a page of another site", s.door.pages.Load()),
			metrics.Counter("http_logins_refused", "wrong passwords of the super user or the viewer, and requests that had to wait after them",
				s.door.logins.Load()),
			metrics.Counter("http_reads_refused", "requests of readers without the login that admin.requireLogin wants", s.door.rights.Load()),
			metrics.Counter("http_requests_crowded", "requests of readers that waited for their turn in vain", s.pace.crowded.Load()),
			metrics.Counter("http_answers_refused", "answers of the console for which there was no memory",
				s.door.memory.Load()+s.console.IndexRefused()))
	}
	if s.tls != nil {
		ms = append(ms, s.tls.metrics()...)
	}
	if s.audit != nil {
		lines := s.audit.Stats()
		ms = append(ms, metrics.Counter("audit_lines", "lines of the audit log", lines.Lines),
			metrics.Counter("audit_lines_lost", "lines of the audit log that found no room in audit.queueBytes", lines.Lost))
	}
	ms = append(ms,
		metrics.Advanced("jvm_pause_time_ms", "ms by which this process was late, measured each second: it, or its machine, did not run",
			s.recents.Distribution(&s.clocks.pauses, inMs, nil)))
	if s.dirs != nil {
		ms = append(ms, metrics.Counter("disk_full_stops", "how often this member had to wait for space for its log",
			s.cfg.DiskFullStops))
		if free, ok := datadir.FreeBytes(s.cfg.DataLogDir); ok {
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
			value = javaDecimal(f)
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

const (
	inMs      = 1e-6 // of a nanosecond
	inSeconds = 1e-9
)

// durationBounds are the bounds of histograms of durations: 0.13 ms to 17 s, each twice the one
// before it.
var durationBounds = powersOfTwo(17, 34)

// sizeBounds are those of bytes, commandBounds those of numbers of commands.
var sizeBounds, commandBounds = powersOfTwo(7, 23), powersOfTwo(1, 11)

// marginBounds are those of shares of a session timeout.
var marginBounds = []int64{eighth / 2, eighth, 2 * eighth, 3 * eighth, 4 * eighth, 5 * eighth, 6 * eighth, 7 * eighth, 8 * eighth}

const eighth = session.LeaseMarginUnit / 8

func powersOfTwo(from, to int) (bounds []int64) {
	for i := from; i <= to; i++ {
		bounds = append(bounds, 1<<i)
	}
	return bounds
}

// workMetrics are how long the work of this member takes: for clients, and for the log.
func (s *Server) workMetrics() metrics.List {
	work, log := s.sessions.Measures(), s.replica.Measures()
	ms := func(h *histogram.Histogram) metrics.Distribution { return s.recents.Distribution(h, inMs, nil) }
	count := func(h *histogram.Histogram) metrics.Distribution { return s.recents.Distribution(h, 1, nil) }
	failed := s.cfg.DiskFullStops
	if s.Err() != nil {
		failed++
	}
	return metrics.List{
		metrics.Advanced("readlatency", "ms from the last byte of a read, a ping or a sync to its reply", ms(&work.Reads)),
		metrics.Advanced("updatelatency", "ms from the last byte of an update, or of a handshake, to its reply", ms(&work.Updates)),
		metrics.Counter("response_bytes", "bytes of replies, without the lengths in front of them", work.ReplyBytes.Load()),
		metrics.Counter("watch_bytes", "bytes of notifications, counted in the same way",
			work.NotificationBytes.Load()),
		metrics.Counter("stale_sessions_expired", "sessions that expired while this member led", work.Expired.Load()),
		metrics.Histogram("lease_margin_ratio", "share of its timeout that a session had left when the leader heard of it again; "+
			"0 for one that expired", s.recents.Distribution(&work.LeaseMargin, 1./session.LeaseMarginUnit, marginBounds)),
		metrics.Histogram("lock_handoff_seconds", "seconds from the end of a lock's holder, as this member applied it, to the first "+
			"request of the next holder's client, if that is connected to this member",
			s.recents.Distribution(&work.Handoff, inSeconds, durationBounds)),

		metrics.Summary("election_time", "ms without a leader, until there was one", ms(&log.Election)),
		metrics.Counter("looking_count", "times that this member began to be without a leader, its start included",
			log.Looking.Load()),
		metrics.Advanced("propagation_latency", "ms from the making of an entry until it was applied here, by the leader's wall clock and "+
			"this member's", ms(&log.Propagation)),
		metrics.Advanced("proposal_latency", "ms from the making of an entry until a follower had it, by the leader's wall clock and "+
			"the follower's", ms(&log.Proposal)),
		metrics.Advanced("quorum_ack_latency", "ms from the making of an entry until a majority had it on disk; of the leader",
			ms(&log.QuorumAck)),
		metrics.Counter("proposal_count", "updates that this member has proposed as the leader", log.Proposals.Load()),
		metrics.Counter("commit_count", "updates that were committed while this member led", log.Commits.Load()),
		metrics.Counter("snap_count", "times that this leader began to send a member a snapshot", log.SnapshotsSent.Load()),
		metrics.Counter("diff_count", "times that this leader began to send a member what it lacks of the log",
			log.PipelinesOpened.Load()),
		metrics.Summary("prep_processor_queue_size", "updates that waited on the leader when it made an entry of them",
			count(&log.Queued)),
		metrics.Summary("sync_processor_queue_size", "entries that waited for a write to the log, when it began",
			count(&log.FsyncEntries)),

		metrics.Summary("fsynctime", "ms that a write to the log took with its fsync", ms(&log.Fsync)),
		metrics.Histogram("fsync_seconds", "seconds that a write to the log took with its fsync",
			s.recents.Distribution(&log.Fsync, inSeconds, durationBounds)),
		metrics.Counter("disk_hand_overs", "times that this leader had another voter elected because its own disk hung", log.HandOvers.Load()),
		metrics.Counter("disks_replaced", "disks of members that this leader has begun to replace, because the member came back with another one", log.DisksReplaced.Load()),
		metrics.Counter("slow_fsyncs", "writes to the log that took fsync.warningthresholdms or longer", log.SlowFsyncs.Load()),
		metrics.Histogram("apply_seconds", "seconds that an entry took to be applied, with watches and replies",
			s.recents.Distribution(&log.Apply, inSeconds, durationBounds)),
		metrics.Histogram("entry_commands", "updates in an entry that this leader has proposed",
			s.recents.Distribution(&log.EntryCommands, 1, commandBounds)),
		metrics.Histogram("entry_bytes", "bytes of an entry that this leader has proposed",
			s.recents.Distribution(&log.EntryBytes, 1, sizeBounds)),
		metrics.Summary("snapshottime", "ms that a snapshot took until it was on disk", ms(&log.Snapshots)),
		metrics.Counter("snapshot_error_count", "snapshots that could not be written; the log grows meanwhile",
			log.NoSnapshots.Load()),

		metrics.Counter("unrecoverable_error_count", "times that this member could not go on: a full disk, after which it started again "+
			"by itself, or what ends the process", failed),
		metrics.Counter("digest_mismatches_count", "committed entries that did not match their checksums or could not be applied; "+
			"the first one stops the member. Trees are not compared at run time", log.Damaged.Load()),
	}
}

// raftMetrics are where this member is in the log.
func (s *Server) raftMetrics(o overview) metrics.List {
	ready := 0
	if ok, _ := s.Ready(); ok {
		ready = 1
	}
	return metrics.List{
		metrics.Gauge("member_ready", "1 if this member counts: it has applied what leaders have told it to be committed; 0 if it is behind, or "+
			"knows no leader", ready),
		metrics.Counter("snapshots_not_taken", "snapshots of a leader that this member could not take while it was behind",
			s.replica.Measures().SnapshotsNotTaken.Load()),
		metrics.Counter("snapshots_not_delivered", "snapshots of this leader that a member which is behind did not take",
			s.replica.Measures().SnapshotsNotDelivered.Load()),
		metrics.Gauge("raft_term", "the term that this member is in", o.status.Term),
		metrics.Gauge("raft_last_log_index", "index of the last entry in this member's log", o.status.LastIndex),
		metrics.Gauge("raft_commit_index", "index up to which this member knows entries to be committed", o.status.CommitIndex),
		metrics.Gauge("raft_applied_index", "index of the last entry with updates that this member has applied", o.status.AppliedIndex),
	}
}

// prometheusMetrics are what Prometheus has in addition: those with labels, for which mntr has no
// form.
func (s *Server) prometheusMetrics() metrics.List {
	o := s.overview()
	ms := s.metrics(o)
	for _, role := range []string{"standalone", "leader", "follower", "observer", "looking", readOnlyMode} {
		is := 0
		if role == s.mode(o) {
			is = 1
		}
		ms = append(ms, metrics.Gauge("role", "1 for the role that this member is in, 0 for the others", is).With("role", role))
	}
	ms = append(ms, s.lockMetrics(time.Now())...)
	if s.cfg.NoProcessMetrics {
		return ms
	}
	used, rest := heapBytes()
	return append(ms,
		metrics.Gauge("jvm_memory_bytes_used", usedHelp, used).With("area", "heap"),
		metrics.Gauge("jvm_memory_bytes_used", usedHelp, rest).With("area", "nonheap"),
		metrics.Gauge("jvm_memory_bytes_max", maxHelp, debug.SetMemoryLimit(-1)).With("area", "heap"),
		metrics.Gauge("jvm_memory_bytes_max", maxHelp, -1).With("area", "nonheap"))
}

const (
	// contendedLocks is how many locks have metrics of their own.
	contendedLocks = 10
	// pathLabelBytes is how much of a lock's path its metrics have at the most.
	pathLabelBytes = 200
)

// lockMetrics are those of the locks with the most waiters, and of deadlocks.
func (s *Server) lockMetrics(now time.Time) (list metrics.List) {
	seen := map[string]bool{}
	waits := console.Survey(s.replica.View, contendedLocks)
	if waits.Known {
		list = append(list, metrics.Gauge("lock_deadlocks", "deadlocks: sessions that wait for each other in a circle, over any number "+
			"of locks; absent while too many contend to look for them", waits.Deadlocks))
	}
	for _, c := range waits.Contended {
		path := strings.ToValidUTF8(c.Path[:min(len(c.Path), pathLabelBytes)], "\uFFFD")
		if seen[path] { // another lock with the same beginning
			continue
		}
		seen[path] = true
		list = append(list,
			metrics.Gauge("lock_waiters", fmt.Sprintf("clients that wait for a lock; of the %d locks with the most, "+
				"by the first %d bytes of their path", contendedLocks, pathLabelBytes), c.Waiting).With("path", path),
			metrics.Gauge("lock_longest_wait_seconds", "seconds that the first of those who wait for it has waited, by the wall clock",
				c.LongestWait(now).Seconds()).With("path", path))
	}
	return list
}

// heapBytes returns how much Go's heap holds, and what else the runtime has from the system.
func heapBytes() (heap, rest uint64) {
	samples := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	runtimemetrics.Read(samples)
	heap = samples[0].Value.Uint64()
	return heap, samples[1].Value.Uint64() - samples[2].Value.Uint64() - heap
}
