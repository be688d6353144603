package znode

import (
	"net/netip"
	"strconv"
	"strings"
)

// validIPExpr reports whether id is valid in an ACL of scheme "ip": an address, or a network as
// address/bits.
func validIPExpr(id string) bool {
	_, _, ok := parseIPExpr(id)
	return ok
}

func parseIPExpr(expr string) (addr netip.Addr, bits int, ok bool) {
	text, suffix, network := strings.Cut(expr, "/")
	addr, ok = parseIP(text)
	if !ok {
		return netip.Addr{}, 0, false
	}
	bits = addr.BitLen()
	if network {
		n, err := strconv.Atoi(suffix)
		if err != nil || n < 0 || n > bits {
			return netip.Addr{}, 0, false
		}
		bits = n
	}
	return addr, bits, true
}

// parseIP reads an address as ZooKeeper does: zeros in front of the numbers of an IPv4 address are
// fine; IPv6 has neither a zone (such an address matches nothing) nor an IPv4 address at its end.
func parseIP(text string) (addr netip.Addr, ok bool) {
	if strings.IndexByte(text, ':') >= 0 {
		if strings.ContainsAny(text, "%.") {
			return netip.Addr{}, false
		}
		addr, err := netip.ParseAddr(text)
		return addr, err == nil
	}
	var b [4]byte
	for i := range b {
		part := text
		if i < 3 {
			var dot bool
			if part, text, dot = strings.Cut(text, "."); !dot {
				return netip.Addr{}, false
			}
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 255 {
			return netip.Addr{}, false
		}
		b[i] = byte(n)
	}
	return netip.AddrFrom4(b), true
}

// AddrText returns an address as Java writes it, which is the id of scheme ip: an IPv6 address has
// all of its eight numbers, without leading zeros.
func AddrText(a netip.Addr) string {
	a = a.Unmap()
	if !a.Is6() {
		return a.String()
	}
	b := a.As16()
	var groups []string
	for i := 0; i < len(b); i += 2 {
		groups = append(groups, strconv.FormatUint(uint64(b[i])<<8|uint64(b[i+1]), 16))
	}
	text := strings.Join(groups, ":")
	if a.Zone() != "" {
		text += "%" + a.Zone()
	}
	return text
}
