package connector

import (
	"encoding/binary"

	"github.com/gopacket/gopacket/layers"
)

// IP protocol numbers, also used as next-header values of IPv6.
const (
	protoHopByHop = 0
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	protoICMP6    = 58
	protoDestOpts = 60
	protoSCTP     = 132
	protoMobility = 135
)

// Ethernet types.
const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100 // 802.1Q
	etherQinQ  = 0x88a8 // 802.1ad
	etherVLAN2 = 0x9100 // older stacked VLANs
)

// maxHeaders bounds how many VLAN tags, or IPv6 extension headers, are walked.
const maxHeaders = 16

// hasPorts says whether a protocol's header begins with two ports.
func hasPorts(proto uint8) bool {
	return proto == protoTCP || proto == protoUDP || proto == protoSCTP
}

// packetKey is what of a packet becomes the key.
type packetKey uint8

const (
	packetSrc packetKey = iota
	packetDst
	packetPair
	packetFlow
)

// flow is what the headers of one packet say. Slices alias the packet.
type flow struct {
	src, dst     []byte // 4 or 16 bytes each
	proto        uint8
	sport, dport uint16 // 0 if the packet has none: later fragments, cut short, no such protocol
}

// The headers are parsed by hand rather than with gopacket's DecodingLayerParser
// because packets that are cut short within the transport header still have addresses
// to count, where gopacket gives up; it also takes some 0.6 of the time
// (BenchmarkParsePacket). The fuzz test holds it against gopacket's layers.

// parsePacket finds the flow of a captured packet; false if it is not IP, or cut
// short before the addresses end.
func parsePacket(link layers.LinkType, p []byte) (f flow, ok bool) {
	switch link {
	case layers.LinkTypeEthernet:
		if len(p) < 14 {
			return f, false
		}
		return parseEther(binary.BigEndian.Uint16(p[12:]), p[14:])
	case layers.LinkTypeLinuxSLL:
		if len(p) < 16 {
			return f, false
		}
		return parseEther(binary.BigEndian.Uint16(p[14:]), p[16:])
	case layers.LinkTypeLinuxSLL2:
		if len(p) < 20 {
			return f, false
		}
		return parseEther(binary.BigEndian.Uint16(p), p[20:])
	case layers.LinkTypeNull, layers.LinkTypeLoop:
		// Four bytes of address family, whose value for IPv6 depends on the system:
		// the version in the IP header says the same and is the same everywhere.
		if len(p) < 4 {
			return f, false
		}
		return parseIP(p[4:])
	default:
		return parseIP(p)
	}
}

// linkSupported says whether parsePacket knows the link type.
func linkSupported(link layers.LinkType) bool {
	switch link {
	case layers.LinkTypeEthernet, layers.LinkTypeLinuxSLL, layers.LinkTypeLinuxSLL2,
		layers.LinkTypeNull, layers.LinkTypeLoop,
		layers.LinkTypeRaw, linkRawBSD, linkRawOpenBSD, layers.LinkTypeIPv4, layers.LinkTypeIPv6:
		return true
	}
	return false
}

// Raw IP as some systems number it in files.
const (
	linkRawBSD     layers.LinkType = 12
	linkRawOpenBSD layers.LinkType = 14
)

// parseEther walks VLAN tags to the IP header.
func parseEther(etherType uint16, p []byte) (f flow, ok bool) {
	for range maxHeaders {
		switch etherType {
		case etherIPv4:
			return parseIPv4(p)
		case etherIPv6:
			return parseIPv6(p)
		case etherVLAN, etherQinQ, etherVLAN2:
			if len(p) < 4 {
				return f, false
			}
			etherType, p = binary.BigEndian.Uint16(p[2:]), p[4:]
		default:
			return f, false
		}
	}
	return f, false
}

// parseIP goes by the version in the first four bits.
func parseIP(p []byte) (f flow, ok bool) {
	if len(p) == 0 {
		return f, false
	}
	switch p[0] >> 4 {
	case 4:
		return parseIPv4(p)
	case 6:
		return parseIPv6(p)
	}
	return f, false
}

func parseIPv4(p []byte) (f flow, ok bool) {
	if len(p) < 20 || p[0]>>4 != 4 {
		return f, false
	}
	header := int(p[0]&15) * 4
	if header < 20 {
		return f, false
	}
	f = flow{src: p[12:16], dst: p[16:20], proto: p[9]}
	// Only the first fragment carries the transport header.
	if binary.BigEndian.Uint16(p[6:])&0x1fff == 0 && len(p) >= header {
		f.ports(p[header:])
	}
	return f, true
}

func parseIPv6(p []byte) (f flow, ok bool) {
	if len(p) < 40 || p[0]>>4 != 6 {
		return f, false
	}
	f = flow{src: p[8:24], dst: p[24:40], proto: p[6]}
	p = p[40:]
	for range maxHeaders {
		size := 0
		switch f.proto {
		case protoHopByHop, protoRouting, protoDestOpts, protoMobility:
			if len(p) < 2 {
				return f, true
			}
			size = int(p[1])*8 + 8
		case protoAH:
			if len(p) < 2 {
				return f, true
			}
			size = int(p[1])*4 + 8
		case protoFragment:
			if len(p) < 8 {
				return f, true
			}
			size = 8
			if binary.BigEndian.Uint16(p[2:])&0xfff8 != 0 {
				f.proto = p[0]
				return f, true
			}
		default:
			f.ports(p)
			return f, true
		}
		if len(p) < size {
			return f, true
		}
		f.proto, p = p[0], p[size:]
	}
	return f, true
}

// ports reads the ports from the beginning of the transport header, if it has them.
func (f *flow) ports(p []byte) {
	if hasPorts(f.proto) && len(p) >= 4 {
		f.sport, f.dport = binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])
	}
}

// setFlow makes k the wanted part of a flow.
func (k *Key) setFlow(f *flow, want packetKey) {
	v6 := len(f.src) == 16
	kind := func(v4 uint8) uint8 { // the kinds of IPv6 follow those of IPv4
		if v6 {
			return v4 + 1
		}
		return v4
	}
	*k = Key{}
	switch want {
	case packetSrc:
		k.n = kind(kindAddr4)
		copy(k.b[:], f.src)
	case packetDst:
		k.n = kind(kindAddr4)
		copy(k.b[:], f.dst)
	case packetPair, packetFlow:
		k.n = kind(kindPair4)
		n := copy(k.b[:], f.src)
		n += copy(k.b[n:], f.dst)
		if want == packetFlow {
			k.n = kind(kindFlow4)
			binary.BigEndian.PutUint16(k.b[n:], f.sport)
			binary.BigEndian.PutUint16(k.b[n+2:], f.dport)
			k.b[n+4] = f.proto
		}
	}
}
