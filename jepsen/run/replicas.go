package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// replicaPatience is how long it may take until all members show the same
// state, when nobody changes it any more.
const replicaPatience = 30 * time.Second

// checkReplicas says whether all members hold the same: whatever the clients
// saw, two replicas with one zxid and two states are a broken promise.
func (s *stage) checkReplicas(ctx context.Context) workload.Verdict {
	ctx, cancel := context.WithTimeout(ctx, replicaPatience)
	defer cancel()
	v := workload.Verdict{Checker: "replicas", Promise: "C1"}
	zxid, err := s.field.cluster.AwaitAgreement(ctx)
	switch {
	case errors.Is(err, jepsen.ErrReplicasDiffer):
		v.Valid, v.Text = workload.No, err.Error()
		v.Violations = []workload.Violation{{Text: err.Error()}}
	case err != nil:
		v.Valid, v.Text = workload.Unknown, err.Error()
	default:
		v.Valid, v.Text = workload.Yes, fmt.Sprintf("%d members hold the same at zxid 0x%s", len(s.field.cluster.Members()), zxid)
	}
	return v
}
