package metrics

import "strings"

// zooKeeper has the names of ZooKeeper's metrics (3.9) with their types, and of the JVM's metrics
// that are used here. A metric here with one of these names has its type, and the same meaning as
// far as possible; the help line describes it.
var zooKeeper = kinds(map[Kind]string{
	KindGauge: `
		ephemerals_count num_alive_connections avg_latency min_latency max_latency
		outstanding_requests znode_count watch_count approximate_data_size global_sessions
		local_sessions packets_sent packets_received last_client_response_size
		min_client_response_size max_client_response_size connection_drop_probability
		open_file_descriptor_count max_file_descriptor_count uptime auth_failed_count
		outstanding_tls_handshake non_mtls_remote_conn_count non_mtls_local_conn_count
		quorum_size learners synced_followers synced_non_voting_followers synced_observers
		pending_syncs leader_uptime last_proposal_size min_proposal_size max_proposal_size
		quota_count_limit_per_namespace quota_count_usage_per_namespace
		quota_bytes_limit_per_namespace quota_bytes_usage_per_namespace jvm_memory_bytes_used
		jvm_memory_bytes_max`,
	KindCounter: `
		looking_count diff_count snap_count commit_count connection_request_count
		connection_rejected connection_drop_count connection_revalidate_count revalidate_count
		bytes_received_count unrecoverable_error_count add_dead_watcher_stall_time
		dead_watchers_queued dead_watchers_cleared response_packet_cache_hits
		response_packet_cache_misses response_packet_get_children_cache_hits
		response_packet_get_children_cache_misses ensemble_auth_success ensemble_auth_fail
		ensemble_auth_skip prep_processor_request_queued outstanding_changes_queued
		outstanding_changes_removed sessionless_connections_expired stale_sessions_expired
		request_commit_queued throttled_ops learner_proposal_received_count
		learner_commit_received_count sync_processor_request_queued proposal_count
		quit_leading_due_to_disloyal_voter stale_requests stale_requests_dropped stale_replies
		request_throttle_wait_count large_requests_rejected digest_mismatches_count
		unsuccessful_handshake insecure_admin_count tls_handshake_exceeded
		cnxn_closed_without_zk_server_running skip_learner_request_to_next_processor_count
		requests_not_forwarded_to_commit_processor response_bytes watch_bytes
		snapshot_error_count snapshot_rate_limited_count restore_error_count
		restore_rate_limited_count quota_exceeded_error_per_namespace`,
	KindSummary: `
		fsynctime snapshottime restore_time dbinittime follower_sync_time observer_sync_time
		election_time connection_token_deficit inflight_snap_count inflight_diff_count
		node_created_watch_count node_deleted_watch_count node_changed_watch_count
		node_children_watch_count prep_processor_queue_size prep_process_time
		proposal_process_time unavailable_time leader_unavailable_time requests_in_session_queue
		pending_session_queue_size reads_after_write_in_session_queue
		reads_issued_from_session_queue session_queues_drained
		time_waiting_empty_pool_in_commit_processor_read_ms write_batch_time_in_commit_processor
		concurrent_request_processing_in_commit_processor read_commit_proc_req_queued
		write_commit_proc_req_queued commit_commit_proc_req_queued read_commit_proc_issued
		write_commit_proc_issued commit_process_time startup_txns_loaded startup_txns_load_time
		startup_snap_load_time sync_processor_queue_size sync_process_time
		sync_processor_batch_size netty_queued_buffer_capacity
		learner_request_processor_queue_size socket_closing_time write_per_namespace
		read_per_namespace learner_handler_qp_size`,
	KindAdvanced: `
		readlatency updatelatency propagation_latency dead_watchers_cleaner_latency
		prep_processor_queue_time_ms close_session_prep_time read_commitproc_time_ms
		write_commitproc_time_ms local_write_committed_time_ms server_write_committed_time_ms
		om_proposal_process_time_ms om_commit_process_time_ms read_final_proc_time_ms
		write_final_proc_time_ms proposal_latency proposal_ack_creation_latency
		commit_propagation_latency sync_processor_queue_and_flush_time_ms
		sync_processor_queue_time_ms sync_processor_queue_flush_time_ms quorum_ack_latency
		request_throttle_queue_time_ms jvm_pause_time_ms learner_handler_qp_time_ms ack_latency`,
})

func kinds(names map[Kind]string) map[string]Kind {
	all := map[string]Kind{}
	for kind, list := range names {
		for _, name := range strings.Fields(list) {
			all[name] = kind
		}
	}
	return all
}

// InZooKeeper reports whether ZooKeeper has a metric of that name.
func InZooKeeper(name string) bool {
	_, ok := zooKeeper[name]
	return ok
}

// ZooKeeperKind is the type of ZooKeeper's metric of that name; false if there is none.
func ZooKeeperKind(name string) (Kind, bool) {
	kind, ok := zooKeeper[name]
	return kind, ok
}
