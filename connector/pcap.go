package connector

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/afstream/afstream/stream"
)

// Sizes of the classic capture format.
const (
	pcapHeader = 24
	pcapRecord = 16
)

// packetBuf is how much of a capture is read at once.
const packetBuf = 64 << 10

// packetDecoder reads items from the packets of a capture. Packets that are not IP have
// no item.
type packetDecoder struct {
	src    gopacket.ZeroCopyPacketDataSource
	in     *bufio.Reader // what src reads from; pcapgo adds no buffer of its own to one
	rows   *rows
	format Format
	link   layers.LinkType // of all packets, unless mixed
	mixed  bool            // each packet says its link type
	want   packetKey
	bytes  bool // the weight is the packet's original length

	offset  int64  // of the next packet, classic format only
	packets uint64 // read so far
}

// newPacketDecoder takes the options that both formats have.
func newPacketDecoder(r *rows, format Format, o KeyedOptions) (*packetDecoder, error) {
	r.unit = "packet"
	d := &packetDecoder{rows: r, format: format}
	if o.Key != "" {
		keys := []string{"src", "dst", "pair", "flow"}
		i := slices.Index(keys, o.Key)
		if i < 0 {
			return nil, fmt.Errorf("read %s: %w", r.input, unknown("packet key", o.Key, keys))
		}
		d.want = packetKey(i)
	}
	switch o.Weight {
	case "", "packets":
	case "bytes":
		d.bytes = true
	default:
		return nil, fmt.Errorf("read %s: %w", r.input, unknown("packet weight", o.Weight, []string{"packets", "bytes"}))
	}
	return d, nil
}

func buildPcap(c *content, r *rows, from stream.Position, o KeyedOptions) (decoder[Keyed], uint64, error) {
	d, err := newPacketDecoder(r, FormatPcap, o)
	if err != nil {
		return nil, 0, err
	}
	header := make([]byte, pcapHeader)
	if _, err := io.ReadFull(c, header); err != nil {
		return d.broken(err, from)
	}
	if from.Offset > 0 {
		if from.Offset < pcapHeader {
			return nil, 0, fmt.Errorf("%w: offset %d is within the header", ErrBadPosition, from.Offset)
		}
		if err := c.skipTo(from.Offset); err != nil {
			return nil, 0, err
		}
		from.Item = 0 // none to pass over
	}
	d.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(header), c), packetBuf)
	src, err := pcapgo.NewReader(d.in)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: not a pcap file: %w", r.input, err)
	}
	if d.link = src.LinkType(); !linkSupported(d.link) {
		return nil, 0, fmt.Errorf("read %s: packets of link type %d (%s) are not supported", r.input, d.link, d.link)
	}
	d.src, d.packets, d.offset = src, from.Line, max(from.Offset, pcapHeader)
	return d, from.Item, nil
}

func buildPcapNG(c *content, r *rows, from stream.Position, o KeyedOptions) (decoder[Keyed], uint64, error) {
	d, err := newPacketDecoder(r, FormatPcapNG, o)
	if err != nil {
		return nil, 0, err
	}
	d.mixed = true
	d.in = bufio.NewReaderSize(c, packetBuf)
	src, err := pcapgo.NewNgReader(d.in, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	if err != nil {
		return d.broken(err, from)
	}
	d.src = src
	return d, from.Item, nil
}

// broken is what comes of a capture that ends within its header.
func (d *packetDecoder) broken(err error, from stream.Position) (decoder[Keyed], uint64, error) {
	if !fromDevice(err) {
		err = damage(string(d.format), err)
	}
	if err := d.rows.broken(1, err); err != io.EOF {
		return nil, 0, err
	}
	return emptyDecoder[Keyed]{}, from.Item, nil
}

func (d *packetDecoder) read(dst []Keyed) (int, error) {
	for n := 0; n < len(dst); {
		if n > 0 && d.in.Buffered() == 0 {
			return n, nil // do not hold items back while a pipe pauses
		}
		packet, ci, err := d.src.ZeroCopyReadPacketData()
		if err != nil {
			return n, d.end(ci, err)
		}
		d.packets++
		d.offset += pcapRecord + int64(ci.CaptureLength)
		link := d.link
		if d.mixed {
			link, _ = ci.AncillaryData[0].(layers.LinkType)
		}
		f, ok := parsePacket(link, packet)
		if !ok {
			d.rows.ignore()
			continue
		}
		item := &dst[n]
		item.Key.setFlow(&f, d.want)
		item.Hash = item.Key.hash()
		item.Weight = 1
		if d.bytes {
			item.Weight = float64(ci.Length)
		}
		n++
	}
	return len(dst), nil
}

// end tells the end of a capture from one that was cut off; in neither can anything
// follow, since the lengths that lead to the next packet are lost.
func (d *packetDecoder) end(ci gopacket.CaptureInfo, err error) error {
	// The classic reader says EOF also for a packet of which only the header is there.
	if err == io.EOF && (d.mixed || ci.CaptureLength == 0) {
		return io.EOF
	}
	if !fromDevice(err) {
		err = damage(string(d.format), err)
	}
	return d.rows.broken(d.packets+1, err)
}

func (d *packetDecoder) at() (offset int64, line uint64) {
	if d.mixed { // blocks before the packets are needed to read them
		return 0, d.packets
	}
	return d.offset, d.packets
}
