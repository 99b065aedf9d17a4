"""Fat-trees and other fabrics, their readers, and where ranks lie on them."""
