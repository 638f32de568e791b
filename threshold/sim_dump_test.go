package threshold_test

import (
	"fmt"
	"strings"
)

// dump describes where a run stands: what a developer needs first when a seed is stuck.
func (s *sim) dump() string {
	var b strings.Builder
	for _, o := range s.ops {
		fmt.Fprintf(&b, "\noperator %d: sends %d, %+v, norm %v, %v, alpha %v told %v, self %v", o.id, o.sends, o.params,
			o.norm, o.combine, o.alpha, o.told, o.self)
		for _, p := range o.parts {
			fmt.Fprintf(&b, "\n  partition %d: step %d failures %d, pending %d, ", p.index, p.worker.step,
				p.worker.failures, len(p.pending))
			if p.send == nil {
				b.WriteString("not started yet")
				continue
			}
			if p.op.source {
				fmt.Fprintf(&b, "cursor %d of %d, %+v", p.cursor, len(p.script), *p.send)
				continue
			}
			fmt.Fprintf(&b, "busy %v waiting %v closing %d closed %d reclose %v reading %v\n    %+v\n    %+v\n    %+v\n    %+v",
				p.busy, p.waiting, p.closing, p.closed, p.store.reclose, p.reading(), *p.recv, *p.send, *p.back, *p.marks)
		}
	}
	for _, c := range s.channels {
		fmt.Fprintf(&b, "\n%v to %v: linked %v, wire %d, kept %d, sent %d acked %d committed %d, received %v done %v level %d ended %d inbox %d",
			c.from, c.to, c.linked, len(c.wire), len(c.kept), c.sent, c.acked, c.committed, c.received, c.done, c.level,
			c.ended, len(c.inbox))
	}
	return b.String()
}
