package ops

import (
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"lockkeeper/internal/histogram"
	"lockkeeper/server/ops/metrics"
	"lockkeeper/session"
)

// Metrics are the figures with their names, for mntr and the ports with metrics. It leaves out
// figures that do not exist in the member's role or with its configuration, for a number that is
// always zero would look like a measurement.
func (f *Figures) Metrics(u Usage) metrics.List {
	ms := append(f.clientMetrics(), f.hostMetrics(u)...)
	peers := f.Peers
	ms = append(ms, metrics.Counter("log_descriptor_waits", "writes of the log that had to wait for a file descriptor",
		peers.DescriptorWaits))
	ms = append(ms, f.workMetrics()...)
	ms = append(ms, f.raftMetrics()...)
	if f.Alone {
		return ms
	}
	ms = append(ms,
		metrics.Gauge("peer_connections", "connections that are open at the peer port", peers.Connections),
		metrics.Counter("peer_connections_closed", "connections at the peer port that were too many (maxPeerCnxns)",
			peers.Crowded),
		metrics.Counter("peer_strangers_rejected", "connections at the peer port from no member, or with messages "+
			"that no member sends",
			peers.Rejected),
		metrics.Counter("peer_requests_refused", "frames and records from the peer port that no member sends",
			peers.Refused),
		metrics.Gauge("peer_connections_unproved", "open connections at the peer port that have not said, or not "+
			"proved, who they are",
			peers.Auth.Unproved),
		metrics.Counter("peer_proofs_refused", "connections at the peer port without a proof that was due, or with a "+
			"wrong one, or certificate",
			peers.Auth.Refused),
		metrics.Counter("peer_proofs_late", "connections at the peer port that did not say and prove in time "+
			"who they are", peers.Auth.Late),
		metrics.Gauge("peer_frame_bytes", "bytes of large frames that are arriving at the peer port "+
			"(peerFrameMaxBytes)",
			peers.FrameBytes),
		metrics.Gauge("peer_version", "newest version of the protocol between members that this member speaks",
			peers.Version),
		metrics.Counter("peer_versions_refused", "connections between members that have no version of the protocol "+
			"in common",
			peers.VersionsRefused))
	ms = append(ms, f.PeerPort()...)
	if f.Mode() == ReadOnlyMode {
		return ms
	}
	ms = append(ms, metrics.Gauge("quorum_size", "voters", f.Replica.Voters))
	if f.Mode() == "leader" {
		sizes := f.OfLog.EntryBytes.Snapshot()
		ms = append(ms,
			metrics.Gauge("leader_uptime", "ms since this member began to lead", time.Since(f.Since).Milliseconds()),
			metrics.Gauge("last_proposal_size", "bytes of the newest entry that this member has proposed",
				f.OfLog.LastEntryBytes.Load()),
			metrics.Gauge("min_proposal_size", "bytes of the smallest of these entries", sizes.Min),
			metrics.Gauge("max_proposal_size", "bytes of the largest of these entries", sizes.Max),
			metrics.Gauge("synced_followers", "followers that answer and have caught up", f.Replica.SyncedFollowers),
			metrics.Gauge("synced_observers", "observers that answer and have caught up", f.Replica.SyncedObservers),
			metrics.Gauge("learners", "followers and observers that follow",
				f.Replica.SyncedFollowers+f.Replica.SyncedObservers),
			metrics.Gauge("peer_version_common", "newest version of the protocol that all members speak; 0 if there "+
				"is none, "+
				"or a member has not been reached yet", f.CommonVersion),
			metrics.Gauge("pending_syncs", "always 0: a sync is an entry of the log like any update", 0))
	}
	return ms
}

// clientMetrics are about the clients of this member, and the state that it serves them.
func (f *Figures) clientMetrics() metrics.List {
	l := f.Work.Latency
	return metrics.List{
		metrics.Gauge("num_alive_connections", "client connections, four-letter words included", f.Connections),
		metrics.Gauge("outstanding_requests", "requests received and not answered yet", f.Work.Outstanding),
		metrics.Gauge("avg_latency", "ms from the last byte of a request to its reply", l.AvgMs()),
		metrics.Gauge("min_latency", "ms, as avg_latency", l.MinMs),
		metrics.Gauge("max_latency", "ms, as avg_latency", l.MaxMs),
		metrics.Gauge("packets_received", "requests, handshakes and four-letter words", f.Received()),
		metrics.Gauge("packets_sent", "replies, notifications and answers", f.Sent()),
		metrics.Counter("bytes_received_count", "bytes of complete requests", f.Port.BytesReceived),
		metrics.Gauge("znode_count", "nodes, the root counted twice as in ZooKeeper", f.State.Nodes),
		metrics.Gauge("ephemerals_count", "ephemeral nodes", f.State.Ephemerals),
		metrics.Gauge("approximate_data_size", "bytes of paths and data", f.State.DataSizeBytes),
		metrics.Gauge("watch_count", "watches of this member's connections", f.Work.Watches.Watches),
		metrics.Gauge("global_sessions", "sessions of the whole cluster", f.State.Sessions),
		metrics.Gauge("local_sessions", "sessions of read-only mode", f.Work.LocalSessions),
		metrics.Counter("connection_drop_count", "connections that their clients ended, or lost, without closing "+
			"their sessions",
			f.Port.Drops),
		metrics.Counter("connection_request_count", "connect requests, whatever became of them",
			f.Port.ConnectRequests),
		metrics.Counter("cnxn_closed_without_zk_server_running", "handshakes refused: no leader, or the client has "+
			"seen later state",
			f.Port.RefusedHandshakes),
		metrics.Counter("unsuccessful_handshake", "first frames that were no handshake", f.Port.BadHandshakes),
		metrics.Counter("connection_rejected", "connections beyond maxClientCnxns or maxCnxns, handshakes beyond "+
			"connection_throttle_tokens",
			f.Port.Rejected),
		metrics.Counter("sessionless_connections_expired", "connections without a first request in time",
			f.Port.Expired),
		metrics.Gauge("sessionless_connections", "connections without a complete first request, at most "+
			"maxSessionlessCnxns",
			f.Port.Silent),
		metrics.Counter("sessionless_connections_displaced", "the oldest of these, closed for a newer connection",
			f.Port.Displaced),
		metrics.Counter("large_requests_rejected", "requests beyond largeRequestMaxBytes, frames of a length that is "+
			"negative or too large",
			f.Work.TooLarge+f.Port.BadLengths),
		metrics.Counter("throttled_ops", "requests that waited longer than throttled_op_wait_time", f.Work.Throttled),
		metrics.Gauge("client_memory_bytes", "bytes of unsent output, and of requests that arrive or wait, at most "+
			"maxClientMemory", f.Work.Held),
		metrics.Counter("connections_ended_for_memory", "connections closed because they, or all of them, "+
			"held too much",
			f.Work.EndedForMemory),
		metrics.Gauge("watch_memory_bytes", "memory of the watches, at most maxWatchMemory", f.Work.WatchBytes),
		metrics.Counter("watches_refused", "watches beyond maxWatchMemory", f.Work.WatchesRefused),
		metrics.Counter("long_answers_refused", "requests with an answer beyond maxResponseBytes or the limits of "+
			"multiRead",
			f.Work.TooLong),
		metrics.Counter("identities_refused", "logins beyond maxIdentities or maxIdentityBytes",
			f.Work.IdentitiesRefused),
		metrics.Counter("logins_refused", "logins by a scheme that is not there, or without the proof that it wants",
			f.Work.LoginsRefused),
		metrics.Counter("ensemble_auth_fail", "connections closed because their clients expected another ensemble "+
			"(ensembleAuthName)",
			f.Work.OtherEnsemble),
		metrics.Counter("undeliverable_requests", "requests that could not be delivered to the leader; their "+
			"connections were closed",
			f.Work.Undeliverable),
		metrics.Counter("acls_refused", "requests beyond maxACLEntries or maxACLBytes", f.Work.ACLsRefused),
		metrics.Counter("costly_requests_refused", "requests beyond maxRequestCost", f.Work.CostlyRefused),
		metrics.Counter("ephemerals_refused", "requests beyond maxSessionEphemerals", f.Work.EphemeralsRefused),
		metrics.Gauge("data_memory_bytes", "memory of the nodes, at most maxDataBytes", f.Work.StateBytes),
		metrics.Counter("state_full_refused", "requests beyond maxNodes or maxDataBytes", f.Work.StateFull),
		metrics.Counter("sessions_refused", "handshakes beyond maxSessions or maxSessionsPerAddress",
			f.Work.SessionsRefused),
		metrics.Counter("attaches_refused", "handshakes with unknown session ids, beyond those that may wait for the "+
			"leader's answer",
			f.Work.AttachesRefused),
		metrics.Counter("quota_exceeded", "requests beyond a quota (enforceQuota)", f.Work.QuotaExceeded),
		metrics.Counter("quotas_kept", "requests of others than super users to change quotas (keepQuotas)",
			f.Work.QuotasKept),
		metrics.Counter("rate_quota_pauses", "requests after which a connection paused because of a quota "+
			"(rateQuota.N)", f.Work.RateQuotaPauses),
		metrics.Counter("rate_quota_refused", "sessions, logins and watches beyond a quota (rateQuota.N)",
			f.Work.RateQuotaRefused),
		metrics.Counter("super_logins_refused", "logins under the name of a super user without the password",
			f.Work.SuperLoginsRefused),
		metrics.Counter("attaches_wrong_password", "handshakes with the id of a session and a wrong password",
			f.Work.WrongPasswords),
		metrics.Counter("log_lines_suppressed", "lines of the log beyond 60 a minute with one message", f.LinesDropped),
		metrics.Counter("lock_strangers", "nodes of locks on a path with locks of another library, one of which may "+
			"not wait for the other",
			f.LockStrangers),
		metrics.Gauge("uptime", "ms since the start", f.Uptime.Milliseconds()),
	}
}

// hostMetrics are about the machine of this member: descriptors, HTTP port, disk.
func (f *Figures) hostMetrics(u Usage) (ms metrics.List) {
	if u.OpenFiles >= 0 {
		ms = append(ms, metrics.Gauge("open_file_descriptor_count", "files and sockets open", u.OpenFiles))
	}
	if u.MaxFiles >= 0 {
		ms = append(ms, metrics.Gauge("max_file_descriptor_count", "files and sockets allowed", u.MaxFiles))
	}
	if h := f.HTTP; h != nil {
		ms = append(ms,
			metrics.Counter("http_connections_refused", "beyond admin.maxCnxns or admin.maxCnxnsPerAddress, all "+
				"others being served",
				h.Refused),
			metrics.Counter("http_connections_displaced", "closed in favour of a newer one: idle, or with an "+
				"incomplete request",
				h.Displaced),
			metrics.Counter("http_requests_late", "requests that did not come within admin.requestTimeout", h.Late),
			metrics.Counter("http_hosts_refused", "requests with a Host that is no name of this member", h.Hosts),
			metrics.Counter("http_pages_refused", "requests that a browser sent for a page of another site", h.Pages),
			metrics.Counter("http_logins_refused", "wrong passwords of the super user or the viewer, and requests "+
				"that had to wait after them",
				h.Logins),
			metrics.Counter("http_reads_refused", "requests of readers without the login that admin.requireLogin wants",
				h.Rights),
			metrics.Counter("http_requests_crowded", "requests of readers that waited for their turn in vain",
				h.Crowded),
			metrics.Counter("http_answers_refused", "answers of the console for which there was no memory",
				h.Memory+f.IndexRefused))
	}
	if l := f.Locks; l != nil {
		ms = append(ms,
			metrics.Gauge("http_locks_waiting", "requests over HTTP that wait for a lock, and locks that are "+
				"being left",
				l.Waiting),
			metrics.Gauge("http_locks_held", "locks that are held over HTTP", l.Held),
			metrics.Counter("http_locks_granted", "locks granted over HTTP", l.Granted),
			metrics.Counter("http_locks_lost", "locks over HTTP that ended without being released", l.Lost),
			metrics.Counter("http_locks_refused", "requests for locks beyond admin.maxLocks, for one address or "+
				"identity, or half of admin.maxCnxns", l.Refused))
	}
	if f.TLS != nil {
		ms = append(ms, f.TLS()...)
	}
	if lines := f.Audit; lines != nil {
		ms = append(ms, metrics.Counter("audit_lines", "lines of the audit log", lines.Lines),
			metrics.Counter("audit_lines_lost", "lines of the audit log that found no room in audit.queueBytes",
				lines.Lost))
	}
	ms = append(ms,
		metrics.Advanced("jvm_pause_time_ms", "ms by which this process was late, measured each second: it, or its "+
			"machine, did not run",
			f.inMs(f.Pauses)))
	if u.DataDir != "" {
		ms = append(ms, metrics.Counter("disk_full_stops", "how often this member had to wait for space for its log",
			f.DiskFullStops))
		if u.FreeBytes >= 0 {
			ms = append(ms, metrics.Gauge("disk_free_bytes", "that are free where the log is", u.FreeBytes))
		}
	}
	return ms
}

const (
	inMs      = 1e-6 // of a nanosecond
	inSeconds = 1e-9
)

// durationBounds are the bounds of histograms of durations: 0.13 ms to 17 s, each twice the one
// before it.
var durationBounds = powersOfTwo(17, 34)

// sizeBounds are the bounds of histograms of bytes, commandBounds of numbers of commands.
var sizeBounds, commandBounds = powersOfTwo(7, 23), powersOfTwo(1, 11)

// marginBounds are the bounds of histograms of shares of a session timeout.
var marginBounds = []int64{eighth / 2, eighth, 2 * eighth, 3 * eighth, 4 * eighth, 5 * eighth, 6 * eighth, 7 * eighth,
	8 * eighth}

const eighth = session.LeaseMarginUnit / 8

func powersOfTwo(from, to int) (bounds []int64) {
	for i := from; i <= to; i++ {
		bounds = append(bounds, 1<<i)
	}
	return bounds
}

// workMetrics are how long the work of this member takes: for clients, and for the log.
func (f *Figures) workMetrics() metrics.List {
	work, log := f.OfWork, f.OfLog
	ms := f.inMs
	count := func(h *histogram.Histogram) metrics.Distribution { return f.Recents.Distribution(h, 1, nil) }
	return metrics.List{
		metrics.Advanced("readlatency", "ms from the last byte of a read, a ping or a sync to its reply",
			ms(&work.Reads)),
		metrics.Advanced("updatelatency", "ms from the last byte of an update, or of a handshake, to its reply",
			ms(&work.Updates)),
		metrics.Counter("response_bytes", "bytes of replies, without the lengths in front of them",
			work.ReplyBytes.Load()),
		metrics.Counter("watch_bytes", "bytes of notifications, counted in the same way",
			work.NotificationBytes.Load()),
		metrics.Counter("stale_sessions_expired", "sessions that expired while this member led", work.Expired.Load()),
		metrics.Histogram("lease_margin_ratio", "share of its timeout that a session had left when the leader heard "+
			"of it again; "+
			"0 for one that expired", f.Recents.Distribution(&work.LeaseMargin, 1./session.LeaseMarginUnit,
			marginBounds)),
		metrics.Histogram("lock_handoff_seconds", "seconds from the end of a lock's holder, as this member applied "+
			"it, to the first "+
			"request of the next holder's client, if that is connected to this member",
			f.Recents.Distribution(&work.Handoff, inSeconds, durationBounds)),

		metrics.Summary("election_time", "ms without a leader, until there was one", ms(&log.Election)),
		metrics.Counter("looking_count", "times that this member began to be without a leader, its start included",
			log.Looking.Load()),
		metrics.Advanced("propagation_latency", "ms from the making of an entry until it was applied here, by the "+
			"leader's wall clock and "+
			"this member's", ms(&log.Propagation)),
		metrics.Advanced("proposal_latency", "ms from the making of an entry until a follower had it, by the "+
			"leader's wall clock and "+
			"the follower's", ms(&log.Proposal)),
		metrics.Advanced("quorum_ack_latency", "ms from the making of an entry until a majority had it on disk; of "+
			"the leader",
			ms(&log.QuorumAck)),
		metrics.Counter("proposal_count", "updates that this member has proposed as the leader", log.Proposals.Load()),
		metrics.Counter("commit_count", "updates that were committed while this member led", log.Commits.Load()),
		metrics.Counter("snap_count", "times that this leader began to send a member a snapshot",
			log.SnapshotsSent.Load()),
		metrics.Counter("diff_count", "times that this leader began to send a member the entries that it lacks",
			log.PipelinesOpened.Load()),
		metrics.Summary("prep_processor_queue_size", "updates that waited on the leader when it made an entry of them",
			count(&log.Queued)),
		metrics.Summary("sync_processor_queue_size", "entries that waited for a write to the log, when it began",
			count(&log.FsyncEntries)),

		metrics.Summary("fsynctime", "ms that a write to the log took with its fsync", ms(&log.Fsync)),
		metrics.Histogram("fsync_seconds", "seconds that a write to the log took with its fsync",
			f.Recents.Distribution(&log.Fsync, inSeconds, durationBounds)),
		metrics.Counter("disk_hand_overs", "times that this leader had another voter elected because its own disk hung",
			log.HandOvers.Load()),
		metrics.Counter("disks_replaced", "disks of members that this leader has begun to replace, because the "+
			"member came back with another one", log.DisksReplaced.Load()),
		metrics.Counter("slow_fsyncs", "writes to the log that took fsync.warningthresholdms or longer",
			log.SlowFsyncs.Load()),
		metrics.Histogram("apply_seconds", "seconds that an entry took to be applied, with watches and replies",
			f.Recents.Distribution(&log.Apply, inSeconds, durationBounds)),
		metrics.Histogram("entry_commands", "updates in an entry that this leader has proposed",
			f.Recents.Distribution(&log.EntryCommands, 1, commandBounds)),
		metrics.Histogram("entry_bytes", "bytes of an entry that this leader has proposed",
			f.Recents.Distribution(&log.EntryBytes, 1, sizeBounds)),
		metrics.Summary("snapshottime", "ms that a snapshot took until it was on disk", ms(&log.Snapshots)),
		metrics.Counter("snapshot_error_count", "snapshots that could not be written; the log grows meanwhile",
			log.NoSnapshots.Load()),

		metrics.Counter("unrecoverable_error_count", "times that this member could not go on: a full disk, after "+
			"which it started again "+
			"by itself, or what ends the process", f.Failures),
		metrics.Counter("digest_mismatches_count", "committed entries that did not match their checksums or could "+
			"not be applied; "+
			"the first one stops the member. Trees are not compared at run time", log.Damaged.Load()),
	}
}

// raftMetrics are where this member is in the log.
func (f *Figures) raftMetrics() metrics.List {
	ready := 0
	if f.Ready {
		ready = 1
	}
	return metrics.List{
		metrics.Gauge("member_ready", "1 if this member counts: it has applied up to the commit index of its leader; "+
			"0 if it is behind, or "+
			"knows no leader", ready),
		metrics.Counter("snapshots_not_taken", "snapshots of a leader that this member could not take while it "+
			"was behind",
			f.OfLog.SnapshotsNotTaken.Load()),
		metrics.Counter("snapshots_not_delivered", "snapshots of this leader that a member which is behind "+
			"did not take",
			f.OfLog.SnapshotsNotDelivered.Load()),
		metrics.Gauge("raft_term", "the term that this member is in", f.Replica.Term),
		metrics.Gauge("raft_last_log_index", "index of the last entry in this member's log", f.Replica.LastIndex),
		metrics.Gauge("raft_commit_index", "index up to which this member knows entries to be committed",
			f.Replica.CommitIndex),
		metrics.Gauge("raft_applied_index", "index of the last entry with updates that this member has applied",
			f.Replica.AppliedIndex),
	}
}

// LabeledMetrics are the metrics with labels, which only Prometheus has: mntr has no form for them.
// locks are the metrics of locks (console.LockMetrics).
func (f *Figures) LabeledMetrics(locks metrics.List, process bool) (ms metrics.List) {
	for _, role := range []string{"standalone", "leader", "follower", "observer", "looking", ReadOnlyMode} {
		is := 0
		if role == f.Mode() {
			is = 1
		}
		ms = append(ms, metrics.Gauge("role", "1 for the role that this member is in, 0 for the others",
			is).With("role", role))
	}
	ms = append(ms, locks...)
	if !process {
		return ms
	}
	used, rest := heapBytes()
	return append(ms,
		metrics.Gauge("jvm_memory_bytes_used", usedHelp, used).With("area", "heap"),
		metrics.Gauge("jvm_memory_bytes_used", usedHelp, rest).With("area", "nonheap"),
		metrics.Gauge("jvm_memory_bytes_max", maxHelp, debug.SetMemoryLimit(-1)).With("area", "heap"),
		metrics.Gauge("jvm_memory_bytes_max", maxHelp, -1).With("area", "nonheap"))
}

// The help lines of the metrics that ZooKeeper has of its JVM.
const (
	usedHelp = "bytes: area heap is what Go's heap holds, nonheap the rest of what the Go runtime has from the system"
	maxHelp  = "bytes: area heap is the limit that the garbage collector keeps to (maxMemory, GOMEMLIMIT); nonheap " +
		"has none, -1"
)

// heapBytes returns the bytes in Go's heap, and the rest of the runtime's memory.
func heapBytes() (heap, rest uint64) {
	samples := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	runtimemetrics.Read(samples)
	heap = samples[0].Value.Uint64()
	return heap, samples[1].Value.Uint64() - samples[2].Value.Uint64() - heap
}
