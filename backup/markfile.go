package backup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
)

// markFile keeps the marks of a store on disk, in one file of slots. A slot is a page: the name of its owner, and two
// places that its marks are written to in turn, so that one of them is whole at any moment. Writes go to the memory of
// the system, if possible as that of this process too, and survive its end.
//
//	0     owner: length(2) record
//	1024  mark:  length(2) record, which begins with a number that tells the newer of the two
//	2560  mark
type markFile struct {
	mu    sync.Mutex
	f     *os.File
	mem   []byte // the file as memory, with room for all slots; nil if the system cannot
	slots map[string]*markSlot
	free  []int64 // slots without an owner
	next  int64   // the first slot beyond the end
	buf   []byte

	closed bool
}

type markSlot struct {
	index  int64
	number uint64 // of the newest mark
}

const (
	markFileName  = "MARKS"
	markSlotBytes = 4096
	markFirst     = 1024
	markSecond    = 2560
	maxMarkSlots  = 4096 // 16 MiB; owners beyond write batches
)

func openMarkFile(dir string) (*markFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, markFileName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	m := &markFile{f: f, slots: map[string]*markSlot{}}
	if err := m.read(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.mem = mapMarks(f, maxMarkSlots*markSlotBytes)
	return m, nil
}

// read finds out who owns which slot. A slot that names nobody, or nobody readable, is free.
func (m *markFile) read() error {
	page := make([]byte, markSlotBytes)
	for m.next = 0; m.next < maxMarkSlots; m.next++ {
		if _, err := m.f.ReadAt(page, m.next*markSlotBytes); err == io.EOF {
			return nil // a last page that is not whole will be written anew
		} else if err != nil {
			return err
		}
		owner, ok := markRecordIn(page[:markFirst], kindMarkOwner)
		if !ok || checkOwner(string(owner)) != nil || m.slots[string(owner)] != nil {
			m.free = append(m.free, m.next)
			continue
		}
		number, _ := newestMark(page)
		m.slots[string(owner)] = &markSlot{index: m.next, number: number}
	}
	return nil
}

// markRecordIn returns the payload of the record at the start of place.
func markRecordIn(place []byte, kind byte) ([]byte, bool) {
	n := int(binary.LittleEndian.Uint16(place))
	if n > len(place)-2 {
		return nil, false
	}
	f, _ := openRecord(place[2:2+n], kind)
	return f.rest, f.why == ""
}

// newestMark returns the newer of the marks in a page that are whole, and its number; 0 and nil if none is.
func newestMark(page []byte) (number uint64, mark []byte) {
	for _, place := range [][]byte{page[markFirst:markSecond], page[markSecond:]} {
		b, ok := markRecordIn(place, kindMarkPlace)
		if !ok || len(b) < 8 {
			continue
		}
		if n := binary.LittleEndian.Uint64(b); n > number {
			number, mark = n, b[8:]
		}
	}
	return number, mark
}

// write replaces the mark of an owner. It reports false if there is no slot left. m.mu is held.
func (m *markFile) write(owner string, record []byte) (bool, error) {
	s := m.slots[owner]
	if s == nil {
		var err error
		if s, err = m.take(owner); s == nil || err != nil {
			return false, err
		}
	}
	place := int64(markFirst)
	if s.number%2 == 1 {
		place = markSecond
	}
	number := s.number + 1
	m.buf = append(m.buf[:0], 0, 0)
	m.buf = startRecord(m.buf, kindMarkPlace)
	m.buf = append(binary.LittleEndian.AppendUint64(m.buf, number), record...)
	m.buf = sealRecord(m.buf, 2)
	binary.LittleEndian.PutUint16(m.buf, uint16(len(m.buf)-2))
	if err := m.put(s.index*markSlotBytes + place); err != nil {
		return false, err
	}
	s.number = number
	return true, nil
}

// put writes m.buf into a slot, whose page take has written.
func (m *markFile) put(at int64) (err error) {
	if m.mem == nil {
		_, err := m.f.WriteAt(m.buf, at)
		return err
	}
	// The page may be gone: somebody has cut the file, or the disk of a file system that writes elsewhere each time is full.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("%s: %v: the file was cut, or its disk is full", markFileName, r)
		default:
			panic(r)
		}
	}()
	copy(m.mem[at:], m.buf)
	return nil
}

// take gives an owner a slot, nil if all are taken.
func (m *markFile) take(owner string) (*markSlot, error) {
	index := m.next
	if n := len(m.free); n > 0 {
		index = m.free[n-1]
	}
	if index == maxMarkSlots {
		return nil, nil
	}
	page := make([]byte, markSlotBytes) // without marks of an earlier owner
	b := append(startRecord(page[2:2:markFirst], kindMarkOwner), owner...)
	b = sealRecord(b, 0)
	binary.LittleEndian.PutUint16(page, uint16(len(b)))
	if _, err := m.f.WriteAt(page, index*markSlotBytes); err != nil {
		return nil, err
	}
	if n := len(m.free); n > 0 {
		m.free = m.free[:n-1]
	} else {
		m.next++
	}
	s := &markSlot{index: index}
	m.slots[owner] = s
	return s, nil
}

// newest returns a copy of the newest mark of an owner.
func (m *markFile) newest(owner string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	s := m.slots[owner]
	if s == nil {
		return nil, nil
	}
	page := make([]byte, markSlotBytes)
	if _, err := m.f.ReadAt(page, s.index*markSlotBytes); err != nil {
		return nil, fmt.Errorf("read mark of %q: %w", owner, err)
	}
	_, mark := newestMark(page)
	return mark, nil
}

// drop frees the slots of all owners that start with prefix.
func (m *markFile) drop(prefix string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	for owner, s := range m.slots {
		if !strings.HasPrefix(owner, prefix) {
			continue
		}
		if _, err := m.f.WriteAt([]byte{0xff, 0xff}, s.index*markSlotBytes); err != nil {
			return fmt.Errorf("drop mark of %q: %w", owner, err)
		}
		delete(m.slots, owner)
		m.free = append(m.free, s.index)
	}
	return nil
}

func (m *markFile) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return errors.Join(unmapMarks(m.mem), m.f.Close())
}
