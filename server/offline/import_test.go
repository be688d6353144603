package offline

import (
	"testing"

	"lockkeeper/quorum"
	"lockkeeper/wire"
	"lockkeeper/zkdata"
)

// Of two members Raft elects the one that ZooKeeper would elect, also if one of them has nothing of
// its epoch yet.
func TestOrigin(t *testing.T) {
	var before quorum.Origin
	for _, test := range []struct {
		current, accepted int64
		zxid              wire.Zxid
		want              quorum.Origin
	}{
		{-1, -1, 0, quorum.Origin{StateTerm: 1, Index: 1}},
		{-1, -1, 0x123, quorum.Origin{StateTerm: 1, Index: 0x123}},
		{1, 1, 0x1_00000005, quorum.Origin{Term: 1, StateTerm: 1, Index: 0x1_00000005}},
		{4, 4, 0x4_00000010, quorum.Origin{Term: 4, StateTerm: 4, Index: 0x4_00000010}},
		{4, 5, 0x4_00000020, quorum.Origin{Term: 5, StateTerm: 4, Index: 0x4_00000020}},
		{5, 5, 0x4_00000010, quorum.Origin{Term: 5, StateTerm: 5, Index: 0x5_00000000}},
		{5, 5, 0x5_00000001, quorum.Origin{Term: 5, StateTerm: 5, Index: 0x5_00000001}},
	} {
		got := origin(&zkdata.Files{CurrentEpoch: test.current, AcceptedEpoch: test.accepted}, test.zxid)
		if got != test.want {
			t.Errorf("epoch %d, zxid %v: %+v, want %+v", test.current, test.zxid, got, test.want)
		}
		if got.StateTerm < before.StateTerm || got.StateTerm == before.StateTerm && got.Index <= before.Index {
			t.Errorf("%+v is not after %+v", got, before)
		}
		before = got
	}
}
