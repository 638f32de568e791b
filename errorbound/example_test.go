package errorbound_test

import (
	"fmt"

	"github.com/afstream/afstream/errorbound"
)

func ExampleParams() {
	p := errorbound.Params{Theta: 1e4, L: 1000, Gamma: 1000}
	fmt.Println("state at most", p.StateBound(1), "off; outputs lost at most", p.LossBound(2))
	for _, s := range []errorbound.Series{errorbound.Geometric, errorbound.Telescoping} {
		fmt.Printf("%v: items at risk after ten failures: %d\n", s, s.Grant(p.L, 10))
	}
	// Output:
	// state at most 11000 off; outputs lost at most 3000
	// geometric: items at risk after ten failures: 0
	// telescoping: items at risk after ten failures: 7
}

func ExampleHeavyHitters() {
	h := errorbound.HeavyHitters{Total: 40 << 30, Phi: 10 << 20, Eps: 0.5, Delta: 1. / 16}
	p := errorbound.Params{Theta: 1e5, L: 1e3}
	fmt.Printf("%+v\n", h.Source())
	fmt.Printf("no key under %.1f MB is reported, but for a chance of 1/16\n", h.FalseLimit(p, 1500, true)/1e6)
	// Output:
	// {Rows:4 Width:8192}
	// no key under 3.6 MB is reported, but for a chance of 1/16
}
