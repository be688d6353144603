package admin

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

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
	run     func(m Member, q url.Values) Fields
}

// commands are ZooKeeper's, by name. ZooKeeper sends the error of a command that has one before the
// command's name, and null behind it.
var commands = []command{
	{name: "configuration", aliases: []string{"conf", "config"}, run: configuration},
	{name: "connection_stat_reset", aliases: []string{"crst"}, changes: true, run: func(m Member, _ url.Values) Fields {
		m.ResetConnectionStats()
		return nil
	}},
	{name: "connections", aliases: []string{"cons"}, listing: true, run: func(m Member, _ url.Values) Fields {
		return connections(m, Connection.details)
	}},
	{name: "dirs", run: func(m Member, _ url.Values) Fields {
		s := m.Stats()
		return Fields{{"datadir_size", s.DataBytes}, {"logdir_size", s.LogBytes}}
	}},
	{name: "dump", listing: true, run: dump},
	{name: "environment", aliases: []string{"env", "envi"}, anyTime: true, private: true, run: func(m Member, _ url.Values) (f Fields) {
		for name, value := range m.Environment() {
			f = append(f, Field{name, value})
		}
		return f
	}},
	{name: "get_trace_mask", aliases: []string{"gtmk"}, anyTime: true, run: func(m Member, _ url.Values) Fields {
		return Fields{{"tracemask", m.TraceMask()}}
	}},
	{name: "hash", run: hash},
	{name: "initial_configuration", aliases: []string{"icfg"}, private: true, run: func(m Member, _ url.Values) Fields {
		return Fields{{"initial_configuration", m.Settings().Text}}
	}},
	{name: "is_read_only", aliases: []string{"isro"}, run: func(m Member, _ url.Values) Fields {
		return Fields{{"read_only", m.Stats().ReadOnly}}
	}},
	{name: "last_snapshot", aliases: []string{"lsnp"}, run: lastSnapshot},
	{name: "leader", aliases: []string{"lead"}, run: leader},
	{name: "monitor", aliases: []string{"mntr"}, run: monitor},
	{name: "observer_connection_stat_reset", aliases: []string{"orst"}, changes: true, run: func(Member, url.Values) Fields {
		return nil // observers are members like others here, and nothing is counted by connection
	}},
	{name: "observers", aliases: []string{"obsr"}, run: observers},
	{name: "ruok", run: func(Member, url.Values) Fields { return nil }},
	{name: "server_stats", aliases: []string{"srvr"}, run: serverStats},
	{name: "set_trace_mask", aliases: []string{"stmk"}, anyTime: true, changes: true, run: setTraceMask},
	{name: "stat_reset", aliases: []string{"srst"}, changes: true, run: func(m Member, _ url.Values) Fields {
		m.ResetStats()
		return nil
	}},
	{name: "stats", aliases: []string{"stat"}, listing: true, run: func(m Member, q url.Values) Fields {
		return append(serverStats(m, q), connections(m, Connection.brief)...)
	}},
	{name: "system_properties", aliases: []string{"sysp"}, anyTime: true, private: true, run: systemProperties},
	{name: "voting_view", run: votingView},
	{name: "watch_summary", aliases: []string{"wchs"}, run: func(m Member, _ url.Values) Fields {
		w := m.WatchCounts()
		return Fields{{"num_connections", w.Connections}, {"num_paths", w.Paths}, {"num_total_watches", w.DataWatches}}
	}},
	{name: "watches", aliases: []string{"wchc"}, listing: true, run: watches},
	{name: "watches_by_path", aliases: []string{"wchp"}, listing: true, run: watchesByPath},
	{name: "zabstate", run: zabState},
}

// id is a session's number as ZooKeeper writes it: signed, as in Java.
func id(s wire.SessionID) string { return strconv.FormatInt(int64(s), 10) }

func configuration(m Member, _ url.Values) Fields {
	s := m.Settings()
	return Fields{
		{"client_port", s.ClientPort},
		{"data_dir", s.DataDir},
		{"data_log_dir", s.DataLogDir},
		{"tick_time", s.Tick.Milliseconds()},
		{"max_client_cnxns", s.MaxClientCnxns},
		{"min_session_timeout", s.MinSessionTimeout.Milliseconds()},
		{"max_session_timeout", s.MaxSessionTimeout.Milliseconds()},
		{"server_id", s.ID},
		{"client_port_listen_backlog", s.Backlog},
	}
}

// connections lists the connections, those with TLS apart.
func connections(m Member, fields func(Connection) Fields) Fields {
	all := m.Connections()
	list := func(secure bool) List {
		return func(yield func(any) bool) {
			for _, c := range all {
				if c.Secure == secure && !yield(fields(c)) {
					return
				}
			}
		}
	}
	return Fields{{"connections", list(false)}, {"secure_connections", list(true)}}
}

func (c Connection) brief() Fields {
	return Fields{
		{"remote_socket_address", c.Remote},
		{"interest_ops", c.Interest},
		{"outstanding_requests", c.Stats.Queued},
		{"packets_received", c.Stats.Received},
		{"packets_sent", c.Stats.Sent},
	}
}

func (c Connection) details() Fields {
	f := c.brief()
	if !c.HasSession {
		return f
	}
	st := c.Stats
	lastReplyMs := int64(0)
	if !st.LastReply.IsZero() {
		lastReplyMs = st.LastReply.UnixMilli()
	}
	return append(f, Fields{
		{"session_id", int64(st.Session)},
		{"last_operation", c.LastOp},
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

func dump(m Member, _ url.Values) Fields {
	s := m.Sessions()
	expiry := func(yield func(string, any) bool) {
		for i := 0; i < len(s.Deadlines); {
			at := s.Deadlines[i].At.UnixMilli()
			end := i
			for end < len(s.Deadlines) && s.Deadlines[end].At.UnixMilli() == at {
				end++
			}
			set := s.Deadlines[i:end]
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
		for session, paths := range s.Ephemerals {
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
func hash(m Member, _ url.Values) Fields {
	zxid, digest := m.Digest()
	return Fields{{"digests", List(func(yield func(any) bool) {
		yield(Fields{{"zxid", fmt.Sprintf("%x", uint64(zxid))}, {"digest", strconv.FormatInt(int64(digest), 10)}})
	})}}
}

func lastSnapshot(m Member, _ url.Values) Fields {
	zxid, at := m.LastSnapshot()
	seconds := int64(0)
	if !at.IsZero() {
		seconds = at.Unix()
	}
	return Fields{{"zxid", fmt.Sprintf("%x", uint64(zxid))}, {"timestamp", seconds}}
}

func leader(m Member, _ url.Values) Fields {
	c := m.Cluster()
	if c.Alone {
		return Fields{{"error", "server is not initialized"}}
	}
	ip := ""
	for _, other := range c.Members {
		if int(other.ID) == c.Leader {
			ip, _, _ = net.SplitHostPort(other.PeerAddr)
		}
	}
	return Fields{{"is_leader", c.Leader == int(c.ID)}, {"leader_id", c.Leader}, {"leader_ip", ip}}
}

func monitor(m Member, _ url.Values) Fields {
	s := m.Stats()
	f := Fields{{"version", s.Version}, {"server_state", s.Mode}}
	for name, value := range m.Metrics() {
		f = append(f, Field{name, value})
	}
	return f
}

// observers lists the observers of the cluster, on the leader. What ZooKeeper says of its
// connections to them has no counterpart: an observer is a member like any other.
func observers(m Member, _ url.Values) Fields {
	c := m.Cluster()
	if c.Alone {
		return Fields{{"synced_observers", 0}, {"observers", List(func(func(any) bool) {})}}
	}
	list := func(yield func(any) bool) {
		for _, o := range c.Members {
			if o.Observer && c.Leader == int(c.ID) &&
				!yield(Fields{{"remote_socket_address", "/" + o.PeerAddr}, {"sid", o.ID}}) {
				return
			}
		}
	}
	return Fields{{"synced_observers", c.Observed}, {"observers", List(list)}}
}

func serverStats(m Member, _ url.Values) Fields {
	s := m.Stats()
	f := Fields{
		{"version", s.Version},
		{"read_only", s.ReadOnly},
		{"server_stats", Fields{
			{"packets_sent", s.Sent},
			{"packets_received", s.Received},
			{"fsync_threshold_exceed_count", s.SlowFsyncs},
			{"client_response_stats", s.Responses.fields()},
			{"data_dir_size", s.DataBytes},
			{"log_dir_size", s.LogBytes},
			{"provider_null", false},
			{"server_state", s.Mode},
			{"last_processed_zxid", int64(s.Zxid)},
			{"outstanding_requests", s.Outstanding},
			{"avg_latency", s.Latency.AvgMs()},
			{"max_latency", s.Latency.MaxMs},
			{"min_latency", s.Latency.MinMs},
			{"num_alive_client_connections", s.Connections},
			{"uptime", s.Uptime.Milliseconds()},
			{"auth_failed_count", s.AuthFailed},
			{"non_mtlsremote_conn_count", 0},
			{"non_mtlslocal_conn_count", 0},
		}},
		{"client_response", s.Responses.fields()},
	}
	if s.Mode == "leader" {
		f = append(f, Field{"proposal_stats", s.Proposals.fields()})
	}
	return append(f, Field{"node_count", s.Nodes})
}

func (s Sizes) fields() Fields {
	return Fields{{"last_buffer_size", s.Last}, {"min_buffer_size", s.Min}, {"max_buffer_size", s.Max}}
}

func setTraceMask(m Member, q url.Values) Fields {
	text := q.Get("traceMask")
	if text == "" {
		return Fields{{"error", "setTraceMask requires long traceMask argument"}}
	}
	mask, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return Fields{{"error", "setTraceMask requires long traceMask argument, got " + text}}
	}
	m.SetTraceMask(mask)
	return Fields{{"tracemask", mask}}
}

// systemProperties are the settings of the file by the names of the system properties that they
// would be in ZooKeeper, and some that describe the process.
func systemProperties(m Member, _ url.Values) (f Fields) {
	all := map[string]string{}
	for name, value := range m.Environment() {
		if name != "zookeeper.version" && name != "host.name" && !strings.HasPrefix(name, "os.memory.") {
			all[name] = value
		}
	}
	maps.Insert(all, m.Settings().Properties)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f = append(f, Field{name, all[name]})
	}
	return f
}

func votingView(m Member, _ url.Values) Fields {
	c := m.Cluster()
	view := Fields{}
	for _, v := range c.Members {
		if v.Observer {
			continue
		}
		view = append(view, Field{strconv.Itoa(int(v.ID)), Fields{
			{"server_addresses", []string{v.PeerAddr}},
			{"election_addresses", []string{v.ElectionAddr}},
			{"client_address", v.Client},
			{"learner_type", "participant"},
		}})
	}
	return Fields{{"current_config", view}}
}

func watches(m Member, _ url.Values) Fields {
	return Fields{{"session_id_to_watched_paths", grouped(m.Watches(),
		func(w session.Watch) (string, any) { return id(w.Session), w.Path })}}
}

func watchesByPath(m Member, _ url.Values) Fields {
	list := m.Watches()
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

func zabState(m Member, _ url.Values) Fields {
	c := m.Cluster()
	if c.Alone {
		return Fields{{"voting", false}, {"zabstate", ""}}
	}
	var self ClusterMember
	for _, other := range c.Members {
		if other.ID == c.ID {
			self = other
		}
	}
	zxid := uint64(m.Stats().Zxid)
	return Fields{
		{"myid", c.ID},
		{"is_leader", c.Leader == int(c.ID)},
		{"quorum_address", addressFields(self.PeerAddr)},
		{"election_address", addressFields(self.ElectionAddr)},
		{"client_address", self.Client},
		{"voting", !self.Observer},
		{"last_zxid", fmt.Sprintf("0x%x", zxid)},
		{"zab_epoch", zxid >> 32},
		{"zab_counter", zxid & (1<<32 - 1)},
		{"zabstate", c.State},
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
