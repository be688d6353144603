package session

import (
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// maxQuotaLimitsBytes bounds the data of the node that holds the limits of a quota. What clients
// write there has 100 bytes.
const maxQuotaLimitsBytes = 4096

// refusal is the answer to a request that is not let into the log, CodeOK for others: what would
// cost the members more than the limits allow, and what they are certain to refuse. It takes its
// place in the session's order like a read. A request that is not refused counts its new ephemerals
// in p.
func (s *Session) refusal(p *pending, record wire.Record) wire.Code {
	limits := &s.m.cfg.Limits
	cost := znode.CostOf(record, p.ids)
	switch {
	case cost.ACLEntries > limits.ACLEntries || cost.ACLBytes > limits.ACLBytes:
		s.m.stats.aclsRefused.Add(1)
		return wire.CodeInvalidACL
	case time.Duration(cost.Nanoseconds) > limits.Cost || cost.LimitsBytes > maxQuotaLimitsBytes:
		s.m.stats.costlyRefused.Add(1)
		return wire.CodeBadArguments
	}
	if code := znode.Refusal(record, p.ids); code != wire.CodeOK {
		return code
	}
	if cost.Ephemerals > 0 && cost.Ephemerals+s.ephemerals() > limits.Ephemerals {
		s.m.stats.ephemeralsRefused.Add(1)
		return wire.CodeQuotaExceeded
	}
	p.ephemerals = cost.Ephemerals
	return wire.CodeOK
}

// ephemerals returns how many ephemeral nodes the session has, those included that are on their way
// into the log.
func (s *Session) ephemerals() (n int) {
	s.m.replica.View(func(store *znode.Store) {
		n = store.EphemeralCount(s.id)
		s.mu.Lock()
		n += s.creating
		s.mu.Unlock()
	})
	return n
}
