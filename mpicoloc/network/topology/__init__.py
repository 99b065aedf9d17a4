"""Fat-trees and other fabrics, their readers, and placements of ranks on them."""
