package connector

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/internal/thorough"
)

// TestShippedCapture checks the known facts of the capture that comes with the program.
func TestShippedCapture(t *testing.T) {
	s := open(t, KeyedOptions{Path: "builtin:cip.pcap"})
	items, err := drain(s, 256)
	require.NoError(t, err)
	sources := map[Key]float64{}
	for _, it := range items {
		sources[it.Key] += it.Weight
		require.Equal(t, it.Key.Hash(), it.Hash)
	}
	require.Len(t, sources, 12)
	ignored := s.(Skipper).Ignored()
	require.EqualValues(t, 26_068, int64(len(items))+ignored)
	require.Zero(t, s.(Skipper).Skipped())
}

// TestCapturesAgreeWithGopacket compares every packet of the shipped capture with what
// gopacket's own decoding says of it.
func TestCapturesAgreeWithGopacket(t *testing.T) {
	packets(t, thorough.Number(4000, 26_068), func(p []byte, r *pcapgo.Reader, _ int) {
		checkPacket(t, r.LinkType(), p)
	})
}

// checkPacket holds parsePacket against gopacket's layers, where those get as far.
func checkPacket(t require.TestingT, link layers.LinkType, p []byte) {
	got, ok := parsePacket(link, p)
	packet := gopacket.NewPacket(p, link, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	// Only the outermost IP header counts; gopacket goes on into tunnels.
	network := packet.NetworkLayer()
	if network == nil {
		return // gopacket refuses more, such as a length field that is too small
	}
	var src, dst []byte
	var proto layers.IPProtocol
	version := uint8(4)
	switch ip := network.(type) {
	case *layers.IPv4:
		version = ip.Version
		src, dst, proto = ip.SrcIP.To4(), ip.DstIP.To4(), ip.Protocol
		if ok && version == 4 && ip.FragOffset == 0 {
			checkTransport(t, packet, ip, got)
		}
	case *layers.IPv6:
		src, dst, proto = ip.SrcIP, ip.DstIP, ip.NextHeader
		version = ip.Version - 2
	default:
		return
	}
	if src == nil || version != 4 {
		return // it did not get through the header, or does not mind its version
	}
	if !ok {
		// What gopacket reaches and this parser does not are link layers inside IP-less
		// ones, such as PPPoE or MPLS.
		requireOtherLink(t, packet)
		return
	}
	require.Equal(t, []byte(src), got.src)
	require.Equal(t, []byte(dst), got.dst)
	if _, v4 := network.(*layers.IPv4); v4 {
		require.EqualValues(t, proto, got.proto)
	}
}

// checkTransport compares ports if the transport header follows at once.
func checkTransport(t require.TestingT, packet gopacket.Packet, ip gopacket.Layer, got flow) {
	all := packet.Layers()
	for i, l := range all[:max(len(all)-1, 0)] {
		if l != ip {
			continue
		}
		if len(all[i+1].LayerContents()) == 0 {
			return // given up on
		}
		switch next := all[i+1].(type) {
		case *layers.TCP:
			require.Equal(t, [2]uint16{uint16(next.SrcPort), uint16(next.DstPort)}, [2]uint16{got.sport, got.dport}, packet.String())
		case *layers.UDP:
			require.Equal(t, [2]uint16{uint16(next.SrcPort), uint16(next.DstPort)}, [2]uint16{got.sport, got.dport}, packet.String())
		}
		return
	}
}

// requireOtherLink fails unless something else than the known links is before IP.
func requireOtherLink(t require.TestingT, packet gopacket.Packet) {
	next := layers.EthernetTypeIPv4 // what the layer before said would follow
	for _, l := range packet.Layers() {
		switch next {
		case layers.EthernetTypeIPv4, layers.EthernetTypeIPv6, layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ, etherVLAN2:
		default:
			return
		}
		switch l := l.(type) {
		case *layers.Ethernet:
			next = l.EthernetType
		case *layers.Dot1Q:
			next = l.Type
		case *layers.LinuxSLL:
			next = l.EthernetType
		case *layers.Loopback:
		case *layers.IPv4, *layers.IPv6:
			require.Fail(t, "IP directly on the link was not found", packet.String())
		default:
			return
		}
	}
}

// buildPacket serializes layers with lengths set.
func buildPacket(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, ls...))
	return b.Bytes()
}

var (
	ether4 = &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	ether6 = &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv6}
	etherQ = &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeQinQ}
	udp    = &layers.UDP{SrcPort: 53, DstPort: 5000}
)

func ipv4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: proto, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
}

func ipv6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, NextHeader: next, SrcIP: append(make([]byte, 15), 1), DstIP: append(make([]byte, 15), 2)}
}

// TestPackets goes through what a capture can hold.
func TestPackets(t *testing.T) {
	const raw = layers.LinkTypeRaw
	const eth = layers.LinkTypeEthernet
	fragment := ipv4(layers.IPProtocolUDP)
	fragment.FragOffset = 100
	plain := buildPacket(t, ether4, ipv4(layers.IPProtocolUDP), udp, gopacket.Payload("data"))
	hop := []byte{protoUDP, 0, 1, 4, 0, 0, 0, 0} // one extension header of eight bytes
	laterFragment := []byte{protoUDP, 0, 0, 8, 0, 0, 0, 1}
	for _, c := range []struct {
		name string
		link layers.LinkType
		p    []byte
		flow string // empty: not IP
	}{
		{"udp", eth, plain, "10.0.0.1:53>10.0.0.2:5000/udp"},
		{"tcp", eth, buildPacket(t, ether4, ipv4(layers.IPProtocolTCP), &layers.TCP{SrcPort: 1, DstPort: 2}), "10.0.0.1:1>10.0.0.2:2/tcp"},
		{"icmp", eth, buildPacket(t, ether4, ipv4(layers.IPProtocolICMPv4), gopacket.Payload("12345678")), "10.0.0.1>10.0.0.2/icmp"},
		{"two VLAN tags", eth, buildPacket(t, etherQ,
			&layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeDot1Q},
			&layers.Dot1Q{VLANIdentifier: 8, Type: layers.EthernetTypeIPv4},
			ipv4(layers.IPProtocolUDP), udp), "10.0.0.1:53>10.0.0.2:5000/udp"},
		{"later fragment", eth, buildPacket(t, ether4, fragment, gopacket.Payload("12345678")), "10.0.0.1:0>10.0.0.2:0/udp"},
		{"IPv6", eth, buildPacket(t, ether6, ipv6(layers.IPProtocolUDP), udp), "[::1]:53>[::2]:5000/udp"},
		{"IPv6 extension", eth, buildPacket(t, ether6, ipv6(layers.IPProtocolIPv6HopByHop), gopacket.Payload(hop), udp), "[::1]:53>[::2]:5000/udp"},
		{"IPv6 later fragment", raw, buildPacket(t, ipv6(layers.IPProtocolIPv6Fragment), gopacket.Payload(laterFragment), udp), "[::1]:0>[::2]:0/udp"},
		{"IPv6 authentication and options", raw, buildPacket(t, ipv6(layers.IPProtocolAH),
			gopacket.Payload{protoDestOpts, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, gopacket.Payload{protoUDP, 0, 1, 4, 0, 0, 0, 0}, udp),
			"[::1]:53>[::2]:5000/udp"},
		{"IPv6 first fragment", raw, buildPacket(t, ipv6(layers.IPProtocolIPv6Fragment),
			gopacket.Payload{protoUDP, 0, 0, 1, 0, 0, 0, 1}, udp), "[::1]:53>[::2]:5000/udp"},
		{"IPv6 extension cut off", raw, buildPacket(t, ipv6(layers.IPProtocolIPv6HopByHop), gopacket.Payload(hop))[:43], "::1>::2/0"},
		{"raw", raw, plain[14:], "10.0.0.1:53>10.0.0.2:5000/udp"},
		{"raw by version", layers.LinkTypeIPv6, buildPacket(t, ipv6(layers.IPProtocolUDP), udp), "[::1]:53>[::2]:5000/udp"},
		{"loopback", layers.LinkTypeNull, append([]byte{2, 0, 0, 0}, plain[14:]...), "10.0.0.1:53>10.0.0.2:5000/udp"},
		{"Linux any", layers.LinkTypeLinuxSLL, append(append(make([]byte, 14), 8, 0), plain[14:]...), "10.0.0.1:53>10.0.0.2:5000/udp"},
		{"Linux any, new", layers.LinkTypeLinuxSLL2, append(append([]byte{8, 0}, make([]byte, 18)...), plain[14:]...), "10.0.0.1:53>10.0.0.2:5000/udp"},
		{"ports cut off", eth, plain[:14+20+3], "10.0.0.1:0>10.0.0.2:0/udp"},
		{"IP header cut off", eth, plain[:14+19], ""},
		{"ARP", eth, append(append(make([]byte, 12), 8, 6), make([]byte, 28)...), ""},
		{"nothing", eth, nil, ""},
		{"endless tags", eth, append(make([]byte, 12), bytes.Repeat([]byte{0x81, 0, 0, 0}, 50)...), ""},
	} {
		f, ok := parsePacket(c.link, c.p)
		require.Equal(t, c.flow != "", ok, c.name)
		if ok {
			var k Key
			k.setFlow(&f, packetFlow)
			require.Equal(t, c.flow, k.String(), c.name)
		}
		require.True(t, linkSupported(c.link))
	}
}

// TestEveryCutIsSafe cuts packets of all kinds at every byte.
func TestEveryCutIsSafe(t *testing.T) {
	packets(t, 200, func(p []byte, r *pcapgo.Reader, _ int) {
		for cut := range p {
			parsePacket(r.LinkType(), p[:cut])
		}
	})
}

// captureOf writes packets, each cut to snap bytes, as a capture.
func captureOf(t testing.TB, link layers.LinkType, snap int, ps ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	require.NoError(t, w.WriteFileHeader(uint32(snap), link))
	for _, p := range ps {
		ci := gopacket.CaptureInfo{Length: len(p), CaptureLength: min(len(p), snap)}
		require.NoError(t, w.WritePacket(ci, p[:ci.CaptureLength]))
	}
	return b.Bytes()
}

func TestBytesAreTheOriginalLength(t *testing.T) {
	p := buildPacket(t, ether4, ipv4(layers.IPProtocolUDP), udp, gopacket.Payload(make([]byte, 1000)))
	arp := append(append(make([]byte, 12), 8, 6), make([]byte, 28)...)
	path := writeFile(t, "a.cap", captureOf(t, layers.LinkTypeEthernet, 60, p, arp, p))
	s := open(t, KeyedOptions{Path: path, Key: "pair", Weight: "bytes"})
	items, err := drain(s, 10)
	require.NoError(t, err)
	want := pair{"10.0.0.1>10.0.0.2", 14 + 20 + 8 + 1000}
	require.Equal(t, []pair{want, want}, pairs(items))
	require.EqualValues(t, 1, s.(Skipper).Ignored())
	require.Zero(t, s.(Skipper).Skipped())
}

func TestBothByteOrdersAndResolutions(t *testing.T) {
	want := read(t, KeyedOptions{Path: writeFile(t, "a", capture(t, 50)), Key: "flow"})
	for _, magic := range []uint32{0xa1b2c3d4, 0xa1b23c4d} {
		big := capture(t, 50)
		swap := func(at, n int) {
			for i, j := at, at+n-1; i < j; i, j = i+1, j-1 {
				big[i], big[j] = big[j], big[i]
			}
		}
		for at := pcapHeader; at < len(big); {
			n := int(binary.LittleEndian.Uint32(big[at+8:]))
			for f := 0; f < pcapRecord; f += 4 {
				swap(at+f, 4)
			}
			at += pcapRecord + n
		}
		for _, f := range [][2]int{{4, 2}, {6, 2}, {16, 4}, {20, 4}} {
			swap(f[0], f[1])
		}
		binary.BigEndian.PutUint32(big, magic)
		require.Equal(t, want, read(t, KeyedOptions{Path: writeFile(t, "a", big), Key: "flow"}))
	}
}

// TestCutCaptures cuts both formats at every byte of their last packets.
func TestCutCaptures(t *testing.T) {
	for name, content := range map[string][]byte{"a.pcap": capture(t, 3), "a.pcapng": captureNG(t, 3)} {
		all := read(t, KeyedOptions{Path: writeFile(t, name, content), Key: "flow"})
		for cut := 1; cut < len(content); cut++ {
			o := KeyedOptions{Reader: bytes.NewReader(content[:cut]), Path: name, Key: "flow", OnBad: SkipBad}
			s := open(t, o)
			items, err := drain(s, 10)
			require.NoError(t, err, "%s at %d", name, cut)
			require.Equal(t, all[:len(items)], append([]Keyed{}, items...))
			skipped := s.(Skipper).Skipped()

			o.Reader, o.OnBad = bytes.NewReader(content[:cut]), FailOnBad
			again, err := drain(open(t, o), 10)
			require.Equal(t, items, again)
			if skipped == 0 { // the cut fell between packets
				require.NoError(t, err)
				continue
			}
			require.EqualValues(t, 1, skipped)
			require.ErrorContains(t, err, fmt.Sprintf("packet %d: ", len(items)+1), "%s at %d", name, cut)
		}
	}
}

// TestLengthsAreNotBelieved: a header that claims 4 GiB must not make anyone allocate it.
func TestLengthsAreNotBelieved(t *testing.T) {
	claim := capture(t, 2)
	binary.LittleEndian.PutUint32(claim[16:], 0xffffffff)            // snap length
	binary.LittleEndian.PutUint32(claim[pcapHeader+8:], 0xfffffff0)  // captured
	binary.LittleEndian.PutUint32(claim[pcapHeader+12:], 0xfffffff0) // original
	path := writeFile(t, "a.pcap", claim)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := drain(open(t, KeyedOptions{Path: path}), 10)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "packet 1")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

func TestUnsupportedLink(t *testing.T) {
	path := writeFile(t, "a.pcap", captureOf(t, layers.LinkTypeIEEE802_11, 100, make([]byte, 30)))
	_, err := OpenKeyed(KeyedOptions{Path: path})
	require.ErrorContains(t, err, "link type 105 (802.11)")
}

func FuzzPacket(f *testing.F) {
	packets(f, 50, func(p []byte, r *pcapgo.Reader, _ int) { f.Add(uint16(r.LinkType()), bytes.Clone(p)) })
	f.Add(uint16(layers.LinkTypeRaw), buildPacket(f, ipv6(layers.IPProtocolIPv6HopByHop), gopacket.Payload{protoUDP, 0, 1, 4, 0, 0, 0, 0}, udp))
	other := buildPacket(f, ether4, ipv4(layers.IPProtocolUDP), udp)
	binary.BigEndian.PutUint16(other[12:], 0xffff) // which gopacket takes for IP
	f.Add(uint16(layers.LinkTypeEthernet), other)
	f.Fuzz(func(t *testing.T, link uint16, p []byte) {
		checkPacket(t, layers.LinkType(link), p)
	})
}

// BenchmarkParsePacket is why the headers are parsed by hand.
func BenchmarkParsePacket(b *testing.B) {
	var ps [][]byte
	packets(b, 1000, func(p []byte, _ *pcapgo.Reader, _ int) { ps = append(ps, bytes.Clone(p)) })
	b.Run("by hand", func(b *testing.B) {
		i := 0
		for b.Loop() {
			parsePacket(layers.LinkTypeEthernet, ps[i%len(ps)])
			i++
		}
	})
	b.Run("gopacket", func(b *testing.B) {
		var eth layers.Ethernet
		var ip4 layers.IPv4
		var ip6 layers.IPv6
		var tcp layers.TCP
		var udp layers.UDP
		parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &ip4, &ip6, &tcp, &udp)
		parser.IgnoreUnsupported = true
		var decoded []gopacket.LayerType
		i := 0
		for b.Loop() {
			_ = parser.DecodeLayers(ps[i%len(ps)], &decoded)
			i++
		}
	})
}
