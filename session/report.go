package session

import (
	"strings"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// reportPrefix begins the paths of reports. A report is no node: getData of such a path is answered
// with JSON that this member makes of its state for whoever asks, such as all locks with their
// queues, which a client would have to gather node by node (docs/api.md). No other operation knows
// these paths, and no watch can be set there.
const reportPrefix = "/zookeeper/api/v1/"

// reportOf returns the name of the report that a request asks for.
func (s *Session) reportOf(p *pending) (name string, ok bool) {
	r, is := p.record.(*wire.PathWatchRequest)
	if !is || p.code != wire.CodeOK || p.req.Op != wire.OpGetData || s.m.cfg.Report == nil {
		return "", false
	}
	return strings.CutPrefix(r.Path, reportPrefix)
}

// awaitEmpty waits until all requests of the session are answered: a report is not made in the
// critical section of a write. It does not wait for a change of the members.
func (s *Session) awaitEmpty() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 && !s.deferred && !s.ended.Load() {
		s.out.wake()
		s.dequeued.Wait()
	}
	if s.ended.Load() {
		return errEnded
	}
	return nil
}

// executeReport answers a request for a report; false if it is another one. Only Submit's goroutine
// calls it, when all requests before are answered.
func (s *Session) executeReport(p *pending) bool {
	name, ok := s.reportOf(p)
	if !ok {
		return false
	}
	var data []byte
	code := wire.CodeBadArguments
	if !p.record.(*wire.PathWatchRequest).Watch {
		s.out.wake()
		data, code = s.m.cfg.Report(s.m.ctx, name, p.ids)
	}
	s.m.replica.View(func(store *znode.Store) {
		h := wire.ReplyHeader{Xid: p.req.Xid, Zxid: store.Zxid(), Err: code}
		if code != wire.CodeOK {
			s.reply(p, h, nil, 0)
			return
		}
		stat := wire.Stat{Czxid: h.Zxid, Mzxid: h.Zxid, Pzxid: h.Zxid, DataLength: int32(len(data))}
		s.reply(p, h, wire.GetDataResponse{Data: data, Stat: stat}, len(data))
	})
	return true
}
