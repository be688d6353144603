package znode

import "fmt"

// ClusterID names a cluster: a digest of its first configuration, never 0. States and snapshots
// carry it, so that the files of two clusters are not confused.
type ClusterID uint64

// String has 16 hexadecimal digits.
func (c ClusterID) String() string { return fmt.Sprintf("%016x", uint64(c)) }

// Cluster is the cluster that the state belongs to; 0 if that has not been recorded.
func (s *Store) Cluster() ClusterID { return s.state.cluster }

// RenameCluster moves the state to another cluster, which begins with it. The members of the old
// one do not go over, nor does a restore that was under way.
func (s *Store) RenameCluster(id ClusterID) {
	s.state.cluster, s.state.replacement, s.state.membership = id, nil, membership{}
}
