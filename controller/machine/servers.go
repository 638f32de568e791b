package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/afstream/afstream/cluster"
)

// suspects are backup servers that fail a job: since when, by name. One that fails it nowhere any more is forgotten.
type suspects map[string]time.Time

// accused returns what nodes that are not dead, and this controller, say of the servers of a job's view: by name, of each the worst.
func (m *Machine) accused(j *cluster.Job, own []cluster.Suspect, now time.Time) map[string]cluster.Suspect {
	found := map[string]cluster.Suspect{}
	if len(j.View) < 2 {
		return found // nothing can be done
	}
	take := func(x cluster.Suspect) {
		if x.Job != j.ID || !slices.Contains(j.View, x.Server) {
			return
		}
		// Sessions come in no order: what is written must not depend on that.
		if old, ok := found[x.Server]; !ok || x.Lost && !old.Lost || x.Lost == old.Lost && x.Why < old.Why {
			found[x.Server] = x
		}
	}
	for _, x := range own {
		take(x)
	}
	for _, s := range m.sessions {
		if s.beat == nil || len(s.beat.Suspects) == 0 || m.dead(s, now) != "" {
			continue
		}
		for _, x := range s.beat.Suspects {
			take(x)
		}
	}
	return found
}

// narrow takes out of the view what has failed for too long. If all servers are silent it is hardly all of them that are gone
// for good, and nobody knows which one will be back: then the job waits. One that has lost what it was given has no way back.
func (d *decision) narrow() {
	accused := d.m.accused(d.job(), d.j.accused, d.now)
	since := suspects{}
	for name := range accused {
		since[name] = d.now
		if at, ok := d.j.servers[name]; ok {
			since[name] = at
		}
	}
	d.j.servers = since
	if len(accused) == 0 {
		return
	}
	for _, name := range slices.Clone(d.job().View) {
		x, bad := accused[name]
		works := len(d.job().View) > len(since)
		if !bad || len(d.job().View) == 1 || !x.Lost && (!works || d.now.Sub(since[name]) < d.m.c.Server) {
			continue
		}
		j := d.edit()
		j.View = slices.DeleteFunc(j.View, func(n string) bool { return n == name })
		delete(since, name)
		d.note(-1, cluster.Incident{What: fmt.Sprintf("backup server %s is given up, %q go on: %s", name, j.View, x.Why)})
	}
}
