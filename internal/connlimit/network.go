package connlimit

import "net/netip"

// NetworkOf is an IPv4 address, or the /64 of an IPv6 address: a host may have all of those.
func NetworkOf(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.WithZone("").Prefix(bits) // a length of the address's own kind is no error
	return network
}
