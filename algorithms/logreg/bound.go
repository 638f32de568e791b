package logreg

import (
	"math"

	"github.com/afstream/afstream/errorbound"
)

// Regret describes a run of online gradient descent on convex losses for its regret bound: how much more all predictions
// together lose than those of the best fixed model.
type Regret struct {
	Examples float64 // T
	Rate     float64 // the step of example t is Rate/sqrt(t)
	Radius   float64 // R, the most that the weights are ever away from those of the best fixed model
	Gradient float64 // G, the longest gradient of one loss; for logistic loss the longest example, with its bias
}

// Base returns the bound without failures, R^2*sqrt(T)/(2*rate) + rate*G^2*sqrt(T) (Zinkevich 2003, theorem 1, for the
// step rate/sqrt(t), whose sum over t is at most 2*rate*sqrt(T)). Its mean over the examples goes to 0.
func (r Regret) Base() float64 {
	root := math.Sqrt(r.Examples)
	return r.Radius*r.Radius*root/(2*r.Rate) + r.Rate*r.Gradient*r.Gradient*root
}

// Extra returns by how much any number of failures within p can raise the bound, if one example changes the weights by at
// most alpha: sqrt(T)/(2*rate) * (2*R*D + D^2), where D = Theta + L*alpha. Divided by T it goes to 0 too, so that the
// model still converges to the same optimum. It does not depend on the number of failures.
//
// Derivation. With w the weights, v those of the best model and s the step, the proof of the theorem bounds the excess loss
// of example t by (|w_t-v|^2 - |w_(t+1)-v|^2)/(2*s_t) + s_t*G^2/2 and sums it up. A failure before example t moves the
// weights by d, which raises |w_t-v|^2 by at most 2*R*|d| + |d|^2, hence the sum by that over 2*s_t, and s_t is at least
// rate/sqrt(T). All |d| add up to at most D (errorbound.Params.StateBound), hence all |d|^2 to at most D^2. Gamma bounds
// updates that are late, which the next one for the same weights makes good: it moves no learner's own state.
//
// The source paper's O(Theta^2 + alpha*L^2) and k*sqrt(T) terms are the D^2 and the R*D part of this.
func (r Regret) Extra(p errorbound.Params, alpha float64) float64 {
	d := p.StateBound(alpha)
	return math.Sqrt(r.Examples) / (2 * r.Rate) * (2*r.Radius*d + d*d)
}

// LossBound returns the most by which failures can change the loss of a model on one example whose length, with its bias,
// is at most length: the slope of the logistic loss by the weights is at most that, and the weights differ by at most
// Theta + L*alpha. It bounds what the model of a run may lose more than that of the same run without failures, as far as
// the steps after a failure do not drive the two apart (a step below 2/smoothness, that is Rate*length^2 < 8, cannot).
func LossBound(p errorbound.Params, alpha, length float64) float64 {
	return p.StateBound(alpha) * length
}
