package zoocfg

import (
	"slices"
	"testing"

	"lockkeeper/session"
	"lockkeeper/znode"
)

// TestRateQuotas: they are read in the order of their numbers.
func TestRateQuotas(t *testing.T) {
	file, _ := writeConfig(t, base+`rateQuota.10=requests=1000 writes=100 bytes=1000000 watches=5000 sessions=20 for ip:*
rateQuota.2=writes=500 for x509:CN=batch jobs,O=a for b
rateQuota.3=sessions=5 for ip:2001:db8::1
rateQuota.4=watches=7 for /tenants/*
rateQuota.0=bytes=9 writes=8 for /a b
`, "")
	cfg, err := Load(file)
	want := []session.RateQuota{
		{Key: "rateQuota.0", Path: "/a b", Bytes: 9, Writes: 8},
		{Key: "rateQuota.2", Identity: znode.Identity{Scheme: "x509", ID: "CN=batch jobs,O=a for b"}, Writes: 500},
		{Key: "rateQuota.3", Identity: znode.Identity{Scheme: "ip", ID: "2001:db8:0:0:0:0:0:1"}, Sessions: 5},
		{Key: "rateQuota.4", Path: "/tenants/*", Watches: 7},
		{Key: "rateQuota.10", Identity: znode.Identity{Scheme: "ip", ID: "*"}, Requests: 1000, Writes: 100, Bytes: 1000000, Watches: 5000, Sessions: 20},
	}
	if err != nil || !slices.Equal(cfg.Quotas.Rates, want) {
		t.Errorf("%+v, %v", cfg.Quotas.Rates, err)
	}
}
