package zoocfg

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/session"
	"lockkeeper/znode"
)

const rateQuotaFamily = "rateQuota."

// rateQuotaBounds are the bounds that a rate quota may have, by their names in its value.
var rateQuotaBounds = map[string]struct {
	field    func(*session.RateQuota) *int
	subtrees bool // those of a subtree may have it
}{
	"requests": {field: func(q *session.RateQuota) *int { return &q.Requests }},
	"writes":   {func(q *session.RateQuota) *int { return &q.Writes }, true},
	"bytes":    {func(q *session.RateQuota) *int { return &q.Bytes }, true},
	"watches":  {func(q *session.RateQuota) *int { return &q.Watches }, true},
	"sessions": {field: func(q *session.RateQuota) *int { return &q.Sessions }},
}

// rateQuotaSchemes are the schemes of identities that a rate quota may be for.
var rateQuotaSchemes = []string{"digest", "ip", "sasl", "x509"}

// useRateQuota reads rateQuota.N: bounds, the word for, and the tenant.
func useRateQuota(l *loader, p property) {
	n, err := strconv.ParseUint(strings.TrimPrefix(p.key, rateQuotaFamily), 10, 16)
	if err != nil || p.key != fmt.Sprint(rateQuotaFamily, n) {
		l.fault(p, "the number of a rate quota must be between 0 and %d, without leading zeros", math.MaxUint16)
		return
	}
	bounds, tenant, ok := strings.Cut(p.val, " for ")
	if !ok {
		l.fault(p, `must be bounds, "for" and a tenant, as in "writes=100 for ip:*", not %q`, p.val)
		return
	}
	q := session.RateQuota{Key: p.key}
	reason := setTenant(&q, strings.TrimSpace(tenant))
	for _, bound := range strings.Fields(bounds) {
		if reason == "" {
			reason = setBound(&q, bound)
		}
	}
	if reason != "" {
		l.fault(p, "%s", reason)
		return
	}
	l.rateQuotas = append(l.rateQuotas, numberedQuota{int(n), q})
}

// numberedQuota is a rate quota with the number of its key.
type numberedQuota struct {
	number int
	quota  session.RateQuota
}

// sortRateQuotas puts the rate quotas into the order of their numbers.
func (l *loader) sortRateQuotas() {
	slices.SortFunc(l.rateQuotas, func(a, b numberedQuota) int { return cmp.Compare(a.number, b.number) })
	for _, q := range l.rateQuotas {
		l.cfg.Quotas.Rates = append(l.cfg.Quotas.Rates, q.quota)
	}
}

// setTenant reads the tenant of a rate quota, and returns what is wrong with it.
func setTenant(q *session.RateQuota, tenant string) (reason string) {
	if strings.HasPrefix(tenant, "/") {
		parent := strings.TrimSuffix(tenant, "/*")
		if parent != "" && !znode.ValidPath(parent) || tenant == "/" || strings.Contains(parent, "*") {
			return fmt.Sprintf("%q is neither the path of a subtree nor one with /* behind it", tenant)
		}
		q.Path = tenant
		return ""
	}
	scheme, id, _ := strings.Cut(tenant, ":")
	if !slices.Contains(rateQuotaSchemes, scheme) || id == "" {
		return fmt.Sprintf("%q is neither a path nor an identity: a scheme (%s), a colon, and an id or *", tenant,
			strings.Join(rateQuotaSchemes, ", "))
	}
	if scheme == "ip" && id != "*" {
		addr, err := netip.ParseAddr(id)
		if err != nil {
			return fmt.Sprintf("%q is no IP address", id)
		}
		id = znode.AddrText(addr)
	}
	q.Identity = znode.Identity{Scheme: scheme, ID: id}
	return ""
}

// setBound reads one bound of a rate quota, and returns what is wrong with it.
func setBound(q *session.RateQuota, text string) (reason string) {
	name, value, _ := strings.Cut(text, "=")
	bound, ok := rateQuotaBounds[name]
	if !ok {
		return fmt.Sprintf("%q is none of bytes, requests, sessions, watches and writes", name)
	}
	if q.Path != "" && !bound.subtrees {
		return fmt.Sprintf("the quota of a subtree has no bound for %s: only one of an identity has", name)
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Sprintf("%s must be a number, not %q", name, value)
	}
	if reason = outOfRange(n, 1, math.MaxInt32); reason != "" {
		return name + ": " + reason
	}
	field := bound.field(q)
	if *field != 0 {
		return name + " is there twice"
	}
	*field = n
	return ""
}
