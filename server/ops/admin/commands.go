package admin

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/quorum"
	"lockkeeper/server/ops"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
)

// command is one of the commands that are answered with JSON.
type command struct {
	name    string
	aliases []string
	// anyTime says that it is answered in any state, others while the member serves clients.
	anyTime bool
	// changes says that it is for super users; listing that its answer may be long.
	changes, listing bool
	// private says that it is for super users, and for this machine.
	private bool
	run     func(*request) Fields
}

// commands are ZooKeeper's, by name. ZooKeeper sends the error of a command that has one before the
// command's name, and null behind it.
var commands = []command{
	{name: "configuration", aliases: []string{"conf", "config"}, run: configuration},
	{name: "connection_stat_reset", aliases: []string{"crst"}, changes: true, run: func(r *request) Fields {
		ops.ResetConnectionStats(r)
		return nil
	}},
	{name: "connections", aliases: []string{"cons"}, listing: true, run: func(r *request) Fields {
		return connections(r, details)
	}},
	{name: "dirs", run: func(r *request) Fields {
		u := r.Usage()
		return Fields{{"datadir_size", u.DataBytes}, {"logdir_size", u.LogBytes}}
	}},
	{name: "dump", listing: true, run: dump},
	{name: "environment", aliases: []string{"env", "envi"}, anyTime: true, private: true,
		run: func(r *request) (f Fields) {
			for _, kv := range ops.Environment(r.Figures().Build) {
				f = append(f, Field{kv[0], kv[1]})
			}
			return f
		}},
	{name: "get_trace_mask", aliases: []string{"gtmk"}, anyTime: true, run: func(r *request) Fields {
		return Fields{{"tracemask", r.TraceMask.Load()}}
	}},
	{name: "hash", run: hash},
	{name: "initial_configuration", aliases: []string{"icfg"}, private: true, run: func(r *request) Fields {
		return Fields{{"initial_configuration", r.text}}
	}},
	{name: "is_read_only", aliases: []string{"isro"}, run: func(r *request) Fields {
		return Fields{{"read_only", r.Figures().Mode() == ops.ReadOnlyMode}}
	}},
	{name: "last_snapshot", aliases: []string{"lsnp"}, run: lastSnapshot},
	{name: "leader", aliases: []string{"lead"}, run: leader},
	{name: "monitor", aliases: []string{"mntr"}, run: monitor},
	{name: "observer_connection_stat_reset", aliases: []string{"orst"}, changes: true, run: func(*request) Fields {
		return nil // observers are members like others here, and nothing is counted by connection
	}},
	{name: "observers", aliases: []string{"obsr"}, run: observers},
	{name: "ruok", run: func(*request) Fields { return nil }},
	{name: "server_stats", aliases: []string{"srvr"}, run: serverStats},
	{name: "set_trace_mask", aliases: []string{"stmk"}, anyTime: true, changes: true, run: setTraceMask},
	{name: "stat_reset", aliases: []string{"srst"}, changes: true, run: func(r *request) Fields {
		r.ResetStats()
		return nil
	}},
	{name: "stats", aliases: []string{"stat"}, listing: true, run: func(r *request) Fields {
		return append(serverStats(r), connections(r, brief)...)
	}},
	{name: "system_properties", aliases: []string{"sysp"}, anyTime: true, private: true, run: systemProperties},
	{name: "voting_view", run: votingView},
	{name: "watch_summary", aliases: []string{"wchs"}, run: func(r *request) Fields {
		w := r.Figures().Work.Watches
		return Fields{{"num_connections", w.Connections}, {"num_paths", w.Paths}, {"num_total_watches", w.DataWatches}}
	}},
	{name: "watches", aliases: []string{"wchc"}, listing: true, run: watches},
	{name: "watches_by_path", aliases: []string{"wchp"}, listing: true, run: watchesByPath},
	{name: "zabstate", run: zabState},
}

// id is a session's number as ZooKeeper writes it: signed, as in Java.
func id(s wire.SessionID) string { return strconv.FormatInt(int64(s), 10) }

func configuration(r *request) Fields {
	c, u, id := r.cfg, r.Usage(), 0
	if !c.Standalone() {
		id = int(c.Cluster.ID)
	}
	return Fields{
		{"client_port", r.Figures().ClientPort},
		{"data_dir", u.DataDir},
		{"data_log_dir", u.DataLogDir},
		{"tick_time", c.Sessions.TickTime.Milliseconds()},
		{"max_client_cnxns", max(c.Client.MaxCnxnsPerAddr, 0)},
		{"min_session_timeout", c.Sessions.MinTimeout.Milliseconds()},
		{"max_session_timeout", c.Sessions.MaxTimeout.Milliseconds()},
		{"server_id", id},
		{"client_port_listen_backlog", c.Client.Backlog},
	}
}

// connections lists the connections, those with TLS apart.
func connections(r *request, fields func(ops.Connection) Fields) Fields {
	all := r.Connections()
	list := func(secure bool) List {
		return func(yield func(any) bool) {
			for _, c := range all {
				// A connection counts as one with TLS once it has a session.
				if (c.Secure && c.Session != nil) == secure && !yield(fields(c)) {
					return
				}
			}
		}
	}
	return Fields{{"connections", list(false)}, {"secure_connections", list(true)}}
}

func brief(c ops.Connection) Fields {
	var st session.ConnStats
	if c.Session != nil {
		st = c.Session.Stats()
	}
	return briefFields(c, st)
}

func briefFields(c ops.Connection, st session.ConnStats) Fields {
	return Fields{
		{"remote_socket_address", c.Remote.String()},
		{"interest_ops", ops.Interest(st)},
		{"outstanding_requests", st.Queued},
		{"packets_received", st.Received},
		{"packets_sent", st.Sent},
	}
}

func details(c ops.Connection) Fields {
	if c.Session == nil {
		return brief(c)
	}
	st := c.Session.Stats()
	lastReplyMs := int64(0)
	if !st.LastReply.IsZero() {
		lastReplyMs = st.LastReply.UnixMilli()
	}
	return append(briefFields(c, st), Fields{
		{"session_id", int64(st.Session)},
		{"last_operation", ops.OpName(st.LastOp)},
		{"established", st.Established.UnixMilli()},
		{"session_timeout", st.Timeout.Milliseconds()},
		{"last_cxid", int64(st.LastXid)},
		{"last_zxid", int64(st.LastZxid)},
		{"last_response_time", lastReplyMs},
		{"last_latency", st.LastLatencyMs},
		{"min_latency", st.Latency.MinMs},
		{"avg_latency", int64(st.Latency.AvgMs())},
		{"max_latency", st.Latency.MaxMs},
	}...)
}

func dump(r *request) Fields {
	deadlines, _ := r.Sessions().Deadlines()
	expiry := func(yield func(string, any) bool) {
		for i := 0; i < len(deadlines); {
			at := deadlines[i].At.UnixMilli()
			end := i
			for end < len(deadlines) && deadlines[end].At.UnixMilli() == at {
				end++
			}
			set := deadlines[i:end]
			ids := func(yield func(any) bool) {
				for _, d := range set {
					if !yield(int64(d.Session)) {
						return
					}
				}
			}
			if !yield(strconv.FormatInt(at, 10), List(ids)) {
				return
			}
			i = end
		}
	}
	ephemerals := func(yield func(string, any) bool) {
		for session, paths := range r.ephemerals() {
			if !yield(id(session), texts(paths)) {
				return
			}
		}
	}
	return Fields{{"expiry_time_to_session_ids", Object(expiry)}, {"session_id_to_ephemeral_paths", Object(ephemerals)}}
}

func texts(list []string) List {
	return func(yield func(any) bool) {
		for _, s := range list {
			if !yield(s) {
				return
			}
		}
	}
}

// hash is the digest at the zxid that the member has applied. ZooKeeper has a list of one for every
// 128th zxid, of a digest of its own.
func hash(r *request) Fields {
	zxid, digest := ops.TreeDigest(r)
	return Fields{{"digests", List(func(yield func(any) bool) {
		yield(Fields{{"zxid", fmt.Sprintf("%x", uint64(zxid))}, {"digest", strconv.FormatInt(int64(digest), 10)}})
	})}}
}

func lastSnapshot(r *request) Fields {
	zxid, at := r.Replica().LastSnapshot()
	seconds := int64(0)
	if !at.IsZero() {
		seconds = at.Unix()
	}
	return Fields{{"zxid", fmt.Sprintf("%x", uint64(zxid))}, {"timestamp", seconds}}
}

func leader(r *request) Fields {
	f := r.Figures()
	if f.Alone {
		return Fields{{"error", "server is not initialized"}}
	}
	id, ip := leaderID(f), ""
	if m, ok := f.Membership.Member(uint8(id)); ok && id >= 0 {
		ip = m.Host
	}
	return Fields{{"is_leader", id == int(f.ID)}, {"leader_id", id}, {"leader_ip", ip}}
}

// leaderID is the leader's number, -1 if it is not known.
func leaderID(f *ops.Figures) int {
	if f.Replica.Leader == quorum.NoMember {
		return -1
	}
	return int(f.Replica.Leader)
}

func monitor(r *request) Fields {
	f := r.Figures()
	fields := Fields{{"version", f.Build}, {"server_state", f.Mode()}}
	for name, value := range f.Metrics(r.Usage()).Lines() {
		fields = append(fields, Field{name, value})
	}
	return fields
}

// observers lists the observers of the cluster, on the leader. ZooKeeper's fields about the
// connections to them have no counterpart: an observer is a member like any other.
func observers(r *request) Fields {
	f := r.Figures()
	if f.Alone {
		return Fields{{"synced_observers", 0}, {"observers", List(func(func(any) bool) {})}}
	}
	list := func(yield func(any) bool) {
		for _, o := range f.Membership.Members {
			if o.Observer && leaderID(f) == int(f.ID) &&
				!yield(Fields{{"remote_socket_address", "/" + o.PeerAddr()}, {"sid", o.ID}}) {
				return
			}
		}
	}
	return Fields{{"synced_observers", f.Replica.SyncedObservers}, {"observers", List(list)}}
}

func serverStats(r *request) Fields {
	f, u := r.Figures(), r.Usage()
	responses, proposals := sizeFields(f.OfWork.Replies.Get()), sizeFields(-1, -1, -1)
	if sizes := f.OfLog.EntryBytes.Snapshot(); sizes.Count > 0 {
		proposals = sizeFields(f.OfLog.LastEntryBytes.Load(), sizes.Min, sizes.Max)
	}
	fields := Fields{
		{"version", f.Build},
		{"read_only", f.Mode() == ops.ReadOnlyMode},
		{"server_stats", Fields{
			{"packets_sent", f.Sent()},
			{"packets_received", f.Received()},
			{"fsync_threshold_exceed_count", f.OfLog.SlowFsyncs.Load()},
			{"client_response_stats", responses},
			{"data_dir_size", u.DataBytes},
			{"log_dir_size", u.LogBytes},
			{"provider_null", false},
			{"server_state", f.Mode()},
			{"last_processed_zxid", int64(f.Zxid)},
			{"outstanding_requests", f.Work.Outstanding},
			{"avg_latency", f.Work.Latency.AvgMs()},
			{"max_latency", f.Work.Latency.MaxMs},
			{"min_latency", f.Work.Latency.MinMs},
			{"num_alive_client_connections", f.Connections},
			{"uptime", f.Uptime.Milliseconds()},
			{"auth_failed_count", f.Work.LoginsRefused},
			{"non_mtlsremote_conn_count", 0},
			{"non_mtlslocal_conn_count", 0},
		}},
		{"client_response", responses},
	}
	if f.Mode() == "leader" {
		fields = append(fields, Field{"proposal_stats", proposals})
	}
	return append(fields, Field{"node_count", f.State.Nodes})
}

// sizeFields are sizes in bytes; -1 before the first.
func sizeFields(last, least, most int64) Fields {
	return Fields{{"last_buffer_size", last}, {"min_buffer_size", least}, {"max_buffer_size", most}}
}

func setTraceMask(r *request) Fields {
	text := r.query.Get("traceMask")
	if text == "" {
		return Fields{{"error", "setTraceMask requires long traceMask argument"}}
	}
	mask, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Fields{{"error", "setTraceMask requires long traceMask argument, got " + text}}
	}
	r.TraceMask.Store(mask)
	return Fields{{"tracemask", mask}}
}

// systemProperties are the settings of the file by the names of the system properties that they
// would be in ZooKeeper, and some that describe the process.
func systemProperties(r *request) (f Fields) {
	all := map[string]string{}
	for _, kv := range ops.Environment(r.Figures().Build) {
		if name, value := kv[0], kv[1]; name != "zookeeper.version" && name != "host.name" &&
			!strings.HasPrefix(name, "os.memory.") {
			all[name] = value
		}
	}
	maps.Copy(all, r.properties)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f = append(f, Field{name, all[name]})
	}
	return f
}

func votingView(r *request) Fields {
	f := r.Figures()
	view := Fields{}
	for _, v := range f.Membership.Members {
		if f.Alone || v.Observer {
			continue
		}
		view = append(view, Field{strconv.Itoa(int(v.ID)), Fields{
			{"server_addresses", []string{v.PeerAddr()}},
			{"election_addresses", []string{electionAddr(v)}},
			{"client_address", clientAddr(f, v)},
			{"learner_type", "participant"},
		}})
	}
	return Fields{{"current_config", view}}
}

func watches(r *request) Fields {
	return Fields{{"session_id_to_watched_paths", grouped(r.watches(),
		func(w session.Watch) (string, any) { return id(w.Session), w.Path })}}
}

func watchesByPath(r *request) Fields {
	list := r.watches()
	slices.SortStableFunc(list, func(a, b session.Watch) int { return cmp.Compare(a.Path, b.Path) })
	return Fields{{"path_to_session_ids", grouped(list,
		func(w session.Watch) (string, any) { return w.Path, int64(w.Session) })}}
}

// grouped is an object with a list of items for each head.
func grouped(list []session.Watch, of func(session.Watch) (head string, item any)) Object {
	return func(yield func(string, any) bool) {
		for i := 0; i < len(list); {
			head, _ := of(list[i])
			end := i
			for end < len(list) {
				if h, _ := of(list[end]); h != head {
					break
				}
				end++
			}
			group := list[i:end]
			items := func(yield func(any) bool) {
				for _, w := range group {
					if _, item := of(w); !yield(item) {
						return
					}
				}
			}
			if !yield(head, List(items)) {
				return
			}
			i = end
		}
	}
}

// clientAddr is where clients of a member connect, as f's member knows.
func clientAddr(f *ops.Figures, m zoocfg.Member) string {
	if m.ID == f.ID {
		return f.ClientAddr
	}
	return m.ClientAddr
}

func electionAddr(m zoocfg.Member) string {
	return net.JoinHostPort(m.Host, strconv.Itoa(m.ElectionPort))
}

func zabState(r *request) Fields {
	f := r.Figures()
	if f.Alone {
		return Fields{{"voting", false}, {"zabstate", ""}}
	}
	peers, elections, clients := "", "", ""
	self, ok := f.Membership.Member(f.ID)
	if ok {
		peers, elections, clients = self.PeerAddr(), electionAddr(self), f.ClientAddr
	}
	zxid := uint64(f.Zxid)
	return Fields{
		{"myid", f.ID},
		{"is_leader", leaderID(f) == int(f.ID)},
		{"quorum_address", addressFields(peers)},
		{"election_address", addressFields(elections)},
		{"client_address", clients},
		{"voting", !self.Observer},
		{"last_zxid", fmt.Sprintf("0x%x", zxid)},
		{"zab_epoch", zxid >> 32},
		{"zab_counter", zxid & (1<<32 - 1)},
		{"zabstate", f.ZabState()},
	}
}

// addressFields is an address as ZooKeeper shows its MultipleAddresses. There is one of each kind
// here, which counts as reachable.
func addressFields(addr string) Fields {
	host, port, _ := net.SplitHostPort(addr)
	number := List(func(yield func(any) bool) { yield(Number(cmp.Or(port, "0"))) })
	one := []string{addr}
	return Fields{
		{"empty", false},
		{"all_addresses", one},
		{"all_reachable_addresses", one},
		{"one", addr},
		{"reachable_address", addr},
		{"wildcard_addresses", []string{"0.0.0.0:" + port}},
		{"all_ports", number},
		{"all_host_strings", []string{host}},
		{"all_reachable_addresses_or_all", one},
		{"reachable_or_one", addr},
	}
}
